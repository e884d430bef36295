package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// view is a page that can be read: where it is, the template that shows it, and what that is given.
type view struct {
	name  string // of the template: templates/<name>.html
	title string
	nav   string // the entry of the navigation that it belongs to; "": name
	load  func(*http.Request) (any, error)
}

// page is what every template is given.
type page struct {
	Brand, Title, Nav string
	// Here is the page's own address without Base, for /live.
	Here string
	Who  access.Identity
	// Act tells whether forms are shown. The server refuses them from a viewer anyway.
	Act bool
	// Logout tells whether there is something to log out of.
	Logout bool
	Live   bool
	Notice *notice
	Data   any
}

// notice says at the top of a page what an action came to.
type notice struct {
	Kind  string // good, bad or told
	Text  string
	Lines []string // more of it
	// Now is what the delivery is that an operator wanted to act on.
	Now  *ops.Delivery
	Link string // where more is to be seen, without Base
}

// statusError is an error with the status and the words of its page.
type statusError struct {
	status int
	text   string
	hint   string
}

func (e *statusError) Error() string { return e.text + ": " + e.hint }

// wrong is what is wrong with a form.
func wrong(text, hint string) error { return &statusError{http.StatusUnprocessableEntity, text, hint} }

// notStarted is ops.ErrUnknownDestination in the words of pages.
func notStarted(status int) *statusError {
	return &statusError{status, "No relay has worked on this destination yet", "Start one with “pillarbox run”."}
}

// show makes a page of a view and writes it.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, v view, status int, n *notice) {
	r, cancel := withTimeout(r)
	defer cancel()
	data, err := v.load(r)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.write(w, r, v, status, n, data)
}

// write is show for what has been loaded.
func (d *Dashboard) write(w http.ResponseWriter, r *http.Request, v view, status int, n *notice, data any) {
	nav := v.nav
	if nav == "" {
		nav = v.name
	}
	who := access.Who(r)
	title := v.title
	if titled, ok := data.(interface{ Title() string }); ok {
		title = titled.Title()
	}
	p := page{
		Brand: d.config.Title, Title: title, Nav: nav, Here: r.URL.RequestURI(), Who: who, Act: who.MayOperate(),
		Logout: !d.config.Access.Open(),
		Live:   r.Method == http.MethodGet && d.hasLive(v.name), Notice: n, Data: data,
	}
	if into := fragmentsOf(r.Context()); into != nil {
		into.err = d.fragments(v.name, p, into)
		return
	}
	var out bytes.Buffer
	if err := d.templates[v.name].ExecuteTemplate(&out, "page", p); err != nil {
		d.config.Logger.Error("a page of the dashboard cannot be made", "page", v.name, "error", err)
		http.Error(w, "This page cannot be made. The log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w)
}

// fail shows an error as a page that says what to do.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	if into := fragmentsOf(r.Context()); into != nil {
		into.err = err
		return
	}
	e := d.explain(err)
	d.write(w, r, view{name: "error", title: http.StatusText(e.status)}, e.status, nil,
		map[string]string{"Text": e.text, "Hint": e.hint})
}

// explain turns an error into one for people, and logs what is our own.
func (d *Dashboard) explain(err error) *statusError {
	var known *statusError
	var refused *ops.RefusedError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return &statusError{http.StatusUnprocessableEntity, "That cannot be done", refused.Why}
	case errors.Is(err, ops.ErrUnknownDestination):
		return notStarted(http.StatusNotFound)
	case errors.Is(err, ops.ErrNotFound):
		return &statusError{http.StatusNotFound, "There is nothing here",
			"It may have been deleted by retention, or the address is not right."}
	case errors.Is(err, ops.ErrBadPage):
		return &statusError{http.StatusBadRequest, "This part of the list is not known", "Start from the first page."}
	case errors.Is(err, context.DeadlineExceeded):
		return &statusError{http.StatusServiceUnavailable, "The database takes too long to answer",
			"Try again in a moment. The page “Database” and the log say more; the relays go on by themselves."}
	}
	d.config.Logger.Error("a page of the dashboard could not be loaded", "error", err)
	return &statusError{http.StatusInternalServerError, "The database could not be asked",
		"Check that it runs and can be reached. It said: " + err.Error()}
}

func withTimeout(r *http.Request) (*http.Request, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	return r.WithContext(ctx), cancel
}

// parseTemplates makes one set of templates for each page, out of the layout, the parts and the page's own file.
func parseTemplates(functions template.FuncMap) map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/_*.html"))
	files, err := fs.Glob(templateFiles, "templates/[a-z]*.html")
	if err != nil {
		panic(err) // the pattern is good
	}
	sets := map[string]*template.Template{}
	for _, file := range files {
		set := template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, file))
		sets[strings.TrimSuffix(path.Base(file), ".html")] = set
	}
	return sets
}

// handle adds a view to the pages that can be read.
func (d *Dashboard) handle(pattern string, v view) {
	if d.templates[v.name] == nil {
		panic(fmt.Sprintf("there is no template for the page %s", v.name))
	}
	d.pages.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
		d.show(w, r, v, http.StatusOK, told(r))
	})
}
