package access

import (
	_ "embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

var (
	//go:embed login.html
	loginText string
	//go:embed login.css
	loginStyle []byte
	//go:embed login.svg
	loginIcon []byte

	loginPage = template.Must(template.New("login").Parse(loginText))
)

const maxForm = 8 << 10

// login is what the form shows.
type login struct {
	Base, Next, Problem string
	Tokens, Users       bool
}

func (a *Access) handleLogin(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		if _, refusal := a.session(r); refusal == nil || a.Open() {
			http.Redirect(w, r, a.config.Base+local(r.URL.Query().Get("next")), http.StatusSeeOther)
			return
		}
		problem := ""
		if r.URL.Query().Has("ended") {
			problem = "The session has ended, and nothing was changed. Log in again."
		}
		a.showLogin(w, r, http.StatusOK, problem)
	})
	mux.HandleFunc("GET /login.css", fixed("text/css; charset=utf-8", loginStyle))
	mux.HandleFunc("GET /login.svg", fixed("image/svg+xml", loginIcon))
	mux.HandleFunc("POST /login", a.logIn)
	mux.HandleFunc("POST /logout", a.logOut)
}

func fixed(contentType string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(content)
	}
}

func (a *Access) logIn(w http.ResponseWriter, r *http.Request) {
	if refusal := a.sameOrigin(r); refusal != nil {
		a.refusePage(w, r, refusal.Refusal)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		a.showLogin(w, r, http.StatusBadRequest, "The form could not be read. Try again.")
		return
	}
	name, secret, as := r.PostForm.Get("name"), r.PostForm.Get("password"), kindUser
	if name == "" {
		secret, as = r.PostForm.Get("token"), kindToken
	}
	who, refusal := a.try(r, as, name, strings.TrimSpace(secret))
	if refusal != nil {
		a.announce(w, r, refusal)
		w.Header().Del("WWW-Authenticate") // a browser would ask in its own window
		a.showLogin(w, r, refusal.Status, sentence(refusal.Detail)+" "+sentence(refusal.Hint))
		return
	}
	s := session{Kind: as, Name: who.Name, Until: a.config.Now().Add(sessionTime).Unix()}
	http.SetCookie(w, a.cookie(r, s.seal(strings.TrimSpace(secret)), sessionTime))
	http.Redirect(w, r, a.config.Base+local(r.PostForm.Get("next")), http.StatusSeeOther)
}

func (a *Access) logOut(w http.ResponseWriter, r *http.Request) {
	if refusal := a.sameOrigin(r); refusal != nil {
		a.refusePage(w, r, refusal.Refusal)
		return
	}
	http.SetCookie(w, a.cookie(r, "", 0))
	http.Redirect(w, r, a.config.Base+"/login", http.StatusSeeOther)
}

func (a *Access) showLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	next := r.URL.Query().Get("next")
	if r.Method == http.MethodPost {
		next = r.PostForm.Get("next")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = loginPage.Execute(w, login{
		Base: a.config.Base, Next: local(next), Problem: problem,
		Tokens: len(a.config.Tokens) > 0, Users: len(a.config.Users) > 0,
	})
}

// refusePage leads a person to the form, and tells everybody else in a line why not.
func (a *Access) refusePage(w http.ResponseWriter, r *http.Request, refusal Refusal) {
	person := r.Header.Get("Authorization") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
	if refusal.Status != http.StatusUnauthorized || !person {
		http.Error(w, sentence(refusal.Detail)+" "+sentence(refusal.Hint), refusal.Status)
		return
	}
	w.Header().Del("WWW-Authenticate") // a browser would ask in its own window
	to := a.config.Base + "/login?ended"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		to = a.config.Base + "/login?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// local returns a path of ours to go to after the login. What could lead elsewhere becomes the first page.
func local(next string) string {
	if u, err := url.Parse(next); err == nil && u.Scheme == "" && u.Host == "" && u.User == nil &&
		strings.HasPrefix(next, "/") && !strings.HasPrefix(next, "//") && !strings.ContainsAny(next, "\\\r\n\t") {
		return next
	}
	return "/"
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
