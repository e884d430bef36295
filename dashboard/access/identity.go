package access

import (
	"context"
	"net/http"
)

// Role says what somebody may do.
type Role string

// The roles. An operator may do what a viewer may.
const (
	Viewer   Role = "viewer"   // looks at everything
	Operator Role = "operator" // changes things as well
)

// Identity is who sends a request. The zero Identity is nobody, and may nothing.
type Identity struct {
	// Name stands in the operators' log.
	Name string
	Role Role
}

// LocalName is what whoever sits at this machine is called, where no credential is asked for.
const LocalName = "local operator"

// MayOperate tells whether the role is enough to change something.
func (i Identity) MayOperate() bool { return i.Role == Operator }

type (
	contextKey struct{}
	againKey   struct{}
)

// let is the context of a request that is let in. again tells who sends it now.
func let(ctx context.Context, i Identity, again func() Identity) context.Context {
	return context.WithValue(context.WithValue(ctx, contextKey{}, i), againKey{}, again)
}

// Who returns who sent a request that Wrap or WrapAPI has let in; otherwise nobody.
func Who(r *http.Request) Identity {
	who, _ := r.Context().Value(contextKey{}).(Identity)
	return who
}

// Still tells whether a request that was let in would be let in now as well, as the same: an answer that goes on for long has to ask,
// since a secret may be replaced and a session end meanwhile. What no Access has let in stays as it is.
func Still(r *http.Request) bool {
	again, ok := r.Context().Value(againKey{}).(func() Identity)
	return !ok || again() == Who(r)
}

// RequireOperator refuses pages and forms to everybody else.
func RequireOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Who(r).MayOperate() {
			http.Error(w, "This needs the role operator: ask somebody who has it.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
