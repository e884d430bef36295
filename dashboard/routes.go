package dashboard

import "net/http"

// readable names all pages that can be read.
func (d *Dashboard) readable() {
	d.handle("/{$}", view{name: "overview", title: "Overview", load: d.overview})
	d.handle("/events", view{name: "events", title: "Events", load: d.events})
	d.handle("/events/{ref}", viewEvent(d))
	d.pages.HandleFunc("GET /find", d.find)
	d.pages.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, &statusError{http.StatusNotFound, "There is no such page", "Choose one from the menu."})
	})
}

// viewEvent is the page of one event. Forms of it lead back to it.
func viewEvent(d *Dashboard) view {
	return view{name: "event", title: "Event", nav: "events", load: d.event}
}

// actions names all forms.
func (d *Dashboard) actions(mux *http.ServeMux) {
	d.operate(mux, "/events/{seq}/{destination}/{what}", d.actOnDelivery)
}
