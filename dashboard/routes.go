package dashboard

import "net/http"

// readable names all pages that can be read.
func (d *Dashboard) readable() {
	d.handle("/{$}", view{name: "overview", title: "Overview", load: d.overview})
	d.handle("/events", view{name: "events", title: "Events", load: d.events})
	d.handle("/events/{ref}", viewEvent(d))
	d.handle("/quarantine", view{name: "quarantine", title: "Quarantine", load: d.quarantine})
	d.handle("/jobs", view{name: "jobs", title: "Jobs", load: d.jobs})
	d.handle("/jobs/new", view{name: "newjob", title: "Start a job", nav: "jobs", load: d.newJob})
	d.handle("/jobs/{id}", view{name: "job", nav: "jobs", load: d.job})
	d.handle("/destinations", view{name: "destinations", title: "Destinations", load: d.destinationList})
	d.handle("/destinations/{destination}", view{name: "destination", nav: "destinations", load: d.destination})
	d.handle("/relays", view{name: "relays", title: "Relays", load: d.relays})
	d.handle("/kafka", view{name: "producers", title: "Kafka producers", load: d.producers})
	d.handle("/consumers", view{name: "consumers", title: "Consumers", load: d.consumerList})
	d.handle("/log", view{name: "log", title: "Operators’ log", load: d.operatorLog})
	d.handle("/database", view{name: "database", title: "Database", load: d.database})
	d.handle("/tasks", view{name: "tasks", title: "Retention and tasks", load: d.tasks})
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
	d.operate(mux, "/quarantine", d.actOnMany)
	d.operate(mux, "/jobs", d.startJob)
	d.operate(mux, "/jobs/{id}/{what}", d.steerJob)
	d.operate(mux, "/destinations/{destination}/{what}", d.steerDestination)
}
