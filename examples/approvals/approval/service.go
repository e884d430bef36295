package approval

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Config is what a Service is made of. DB and Events are required.
type Config struct {
	DB      *sql.DB
	Dialect outbox.Dialect
	// Events writes events in a transaction: an outbox, best one that checks contracts.
	Events contract.Enqueuer
	// Committed is told of each commit: the Wake of a relay in the same process. Default: nobody is.
	Committed func()
	// NewID makes the id of an event. Default: a UUID of version 7.
	NewID func() string
}

// Service keeps approvals. It is safe for concurrent use.
type Service struct {
	Config
	sql statements
}

// New returns a service. It does not look at the database: see Migrate.
func New(c Config) (*Service, error) {
	if c.DB == nil || c.Events == nil {
		return nil, errors.New("approvals need a database and an outbox: set DB and Events")
	}
	if c.Committed == nil {
		c.Committed = func() {}
	}
	if c.NewID == nil {
		c.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	s, err := load(c.Dialect)
	return &Service{c, s}, err
}

// Open asks for an approval. It is PENDING until as many as its threshold have agreed. There is nothing to audit yet.
func (s *Service) Open(ctx context.Context, r Request) (Approval, error) {
	if err := r.check(); err != nil {
		return Approval{}, fmt.Errorf("open an approval: %w", err)
	}
	a, err := scan(s.DB.QueryRowContext(ctx, s.sql.open,
		r.ID, r.Tenant, r.Scope, r.BindingDigest, r.Threshold, r.Lifetime.Seconds()))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrExists
	}
	if err != nil {
		return Approval{}, fmt.Errorf("open approval %s: %w", r.ID, err)
	}
	return a, nil
}

// Agree adds the vote of one who agrees. The vote that meets the threshold issues the approval. A second vote of the same actor
// changes nothing.
func (s *Service) Agree(ctx context.Context, id string, act Act) (a Approval, err error) {
	err = s.transact(ctx, "agree to", id, act, func(tx *sql.Tx) error {
		voted, err := tx.ExecContext(ctx, s.sql.vote, id, act.Actor)
		if err != nil {
			return err
		}
		if n, err := voted.RowsAffected(); err != nil || n == 0 { // the vote is there, or the approval is not
			a, err = s.show(ctx, tx, id)
			return err
		}
		if a, err = s.step(ctx, tx, id, Pending, s.sql.agree, id); err != nil || a.State != Approved {
			return err
		}
		_, err = s.tell(ctx, tx, a, Issuance, act)
		return err
	})
	if err != nil {
		return Approval{}, err
	}
	return a, nil
}

// Use lets a request do what was approved: the first one, by the digest of what it asks for. The same request may ask again,
// after a lost answer, and gets the same answer; another one gets ErrUsed.
func (s *Service) Use(ctx context.Context, id, requestDigest string, act Act) (u Use, err error) {
	if !validDigest.MatchString(requestDigest) {
		return Use{}, errors.New("use an approval: the request digest is none: " + digestHint)
	}
	err = s.transact(ctx, "use", id, act, func(tx *sql.Tx) error {
		u = Use{ApprovalID: id, RequestDigest: requestDigest}
		a, err := s.step(ctx, tx, id, Approved, s.sql.use, id, requestDigest)
		if err == nil {
			u.EventID, err = s.tell(ctx, tx, a, Consumption, act)
			return err
		}
		var refused *StateError
		switch {
		case !errors.As(err, &refused) || refused.Approval.State != Consumed:
			return err
		case refused.Approval.RequestDigest != requestDigest:
			return ErrUsed
		}
		return tx.QueryRowContext(ctx, s.sql.used, id).Scan(&u.EventID)
	})
	if err != nil {
		return Use{}, err
	}
	return u, nil
}

// Supersede puts another approval in the place of one.
func (s *Service) Supersede(ctx context.Context, id, successor string, act Act) (Approval, error) {
	return s.change(ctx, "supersede", id, Supersession, act, s.sql.supersede, id, successor)
}

// Revoke takes an approval back. Whether the audit store can be reached does not matter to it.
func (s *Service) Revoke(ctx context.Context, id string, act Act) (Approval, error) {
	return s.change(ctx, "revoke", id, Revocation, act, s.sql.revoke, id)
}

// Show returns an approval as it stands, by the database's clock.
func (s *Service) Show(ctx context.Context, id string) (a Approval, err error) {
	if a, err = s.show(ctx, s.DB, id); err != nil {
		return Approval{}, fmt.Errorf("show approval %s: %w", id, err)
	}
	return a, nil
}
