package access

import (
	"net/http"
	"strconv"
	"time"
)

// policy lets pages load only what they bring along: no inline script or style, no frames, no forms to elsewhere.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// secured puts the headers on every answer. A handler may set another Cache-Control for what never changes.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Not no-referrer: with it browsers send "Origin: null" along with our own forms, which then look like another site's
		// where there is no Sec-Fetch-Site, that is without TLS. This tells other sites as little.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// announce sets the headers of a refusal.
func (a *Access) announce(w http.ResponseWriter, r *http.Request, refusal *refusal) {
	if refusal.stale {
		http.SetCookie(w, a.cookie(r, "", 0))
	}
	if refusal.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(refusal.retryAfter/time.Second)+1))
	}
	if refusal.Status != http.StatusUnauthorized {
		return
	}
	if len(a.config.Tokens) > 0 {
		w.Header().Add("WWW-Authenticate", `Bearer realm="pillarbox"`)
	}
	if len(a.config.Users) > 0 {
		w.Header().Add("WWW-Authenticate", `Basic realm="pillarbox", charset="UTF-8"`)
	}
}
