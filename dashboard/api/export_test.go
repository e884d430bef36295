package api

import "slices"

// Routes lists what New serves, as the document writes it.
func Routes() (all []string) {
	for _, r := range (&api{}).routes() {
		all = append(all, r.method+" "+r.path)
	}
	slices.Sort(all)
	return all
}
