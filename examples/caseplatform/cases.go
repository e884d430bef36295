package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/idempotency"
)

// cases is the service's own part: it submits cases and accepts them. Every change of a case is one transaction with its line in
// the audit log and its event.
type cases struct {
	pool *pgxpool.Pool
	box  contract.Enqueuer
	// beforeCommit is called at the last moment of each transaction; an error rolls it back.
	beforeCommit func() error
	log          *slog.Logger
}

//go:embed postgres/case_core.sql
var caseTables string

const (
	insertCase = `insert into case_core.case_file (case_id, tenant_id, subject, status, version)
	              values ($1, $2, $3, 'SUBMITTED', 1)
	                  on conflict do nothing returning submitted_at`
	acceptCase = `update case_core.case_file
	                 set status = 'ACCEPTED', version = version + 1, accepted_at = clock_timestamp(), accepted_by = $3
	               where case_id = $1 and tenant_id = $2 and status = 'SUBMITTED'
	           returning version, accepted_at`
	lookAtCase = `select status, version from case_core.case_file where case_id = $1 and tenant_id = $2`
	writeAudit = `insert into case_core.case_audit_log (case_id, version, action, actor, correlation_id)
	              values ($1, $2, $3, $4, $5)`
)

// handler returns the API. Accepting needs an Idempotency-Key; submitting does not, because the client names the case.
func (c *cases) handler() (http.Handler, error) {
	keeper, err := idempotency.New(outbox.Postgres, idempotency.Options{Schema: outboxSchema})
	if err != nil {
		return nil, err
	}
	accept, err := idempotency.NewHandler(idempotency.Config[pgx.Tx]{
		Keeper: keeper, Begin: outbox.BeginPgx(c.pool), Handle: c.accept, Log: c.log,
		Operation: func(req *http.Request) (string, error) {
			by, err := callerOf(req)
			return "accept a case of " + by.tenant, err
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cases", c.serveSubmit)
	mux.Handle("POST /cases/{caseId}/accept", accept)
	return mux, nil
}

// accept is called once for each idempotency key. Its answer is stored with the change and the event, in the same transaction,
// and given again to whoever asks with the key again.
func (c *cases) accept(ctx context.Context, tx pgx.Tx, req *http.Request, body []byte) (idempotency.Response, error) {
	by, err := callerOf(req)
	if err != nil {
		return idempotency.Response{}, err
	}
	caseID := req.PathValue("caseId")
	var command struct {
		AcceptedBy string `json:"acceptedBy"` // default: the tenant
	}
	unclear := decode(body, &command)
	wrong := errors.Join(checkName("caseId", caseID), unclear, checkOptional("acceptedBy", command.AcceptedBy))
	if r, bad := badRequest(wrong); bad {
		return r, nil
	}
	accepted := caseAccepted{CaseID: caseID, TenantID: by.tenant, Status: "ACCEPTED", AcceptedBy: command.AcceptedBy}
	if accepted.AcceptedBy == "" {
		accepted.AcceptedBy = by.tenant
	}
	err = tx.QueryRow(ctx, acceptCase, caseID, by.tenant, accepted.AcceptedBy).Scan(&accepted.Version, &accepted.AcceptedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return whyNotAccepted(ctx, tx, caseID, by.tenant)
	case err != nil:
		return idempotency.Response{}, fmt.Errorf("accept case %s: %w", caseID, err)
	}
	accepted.AcceptedAt = accepted.AcceptedAt.UTC()
	if err := c.record(ctx, tx, by, accepted.AcceptedBy, accepted.event()); err != nil {
		return idempotency.Response{}, err
	}
	return answer(http.StatusOK, accepted), nil
}

func whyNotAccepted(ctx context.Context, tx pgx.Tx, caseID, tenant string) (idempotency.Response, error) {
	var status string
	var version int64
	err := tx.QueryRow(ctx, lookAtCase, caseID, tenant).Scan(&status, &version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(http.StatusNotFound, "CASE_NOT_FOUND", "there is no such case: submit it first"), nil
	case err != nil:
		return idempotency.Response{}, fmt.Errorf("look at case %s: %w", caseID, err)
	}
	return refuse(http.StatusConflict, "CASE_NOT_SUBMITTED",
		fmt.Sprintf("the case is %s, version %d: only a case that is SUBMITTED can be accepted", status, version)), nil
}

// record writes what goes with a change: the line in the audit log, and the event.
func (c *cases) record(ctx context.Context, tx pgx.Tx, by caller, actor string, e outbox.Event) error {
	e.Headers = map[string]string{"correlationId": by.correlation, "tenantId": by.tenant, "producer": producer}
	if _, err := tx.Exec(ctx, writeAudit, e.AggregateID, e.AggregateVersion, e.Type, actor, by.correlation); err != nil {
		return fmt.Errorf("write the audit log of case %s: %w", e.AggregateID, err)
	}
	results, err := c.box.Enqueue(ctx, outbox.Pgx(tx), e)
	switch {
	case err != nil:
		return err
	case results[0].Duplicate: // the version rises with every change, so nobody else can have told of it
		return fmt.Errorf("the log has %s already: was the case restored without its outbox?", e.DedupKey)
	}
	return c.beforeCommit()
}

func (c *cases) serveSubmit(w http.ResponseWriter, req *http.Request) {
	r, err := c.submit(w, req)
	if err != nil {
		c.log.ErrorContext(req.Context(), "case not submitted", "error", err)
		r = idempotency.Response{Status: http.StatusInternalServerError}
	}
	write(w, r)
}

func (c *cases) submit(w http.ResponseWriter, req *http.Request) (r idempotency.Response, err error) {
	by, err := callerOf(req)
	if err != nil {
		return idempotency.Response{Status: http.StatusUnauthorized}, nil
	}
	var command struct {
		CaseID  string `json:"caseId"` // default: a new one
		Subject string `json:"subject"`
	}
	body, unread := read(w, req)
	unclear := decode(body, &command)
	wrong := errors.Join(unread, unclear, checkOptional("caseId", command.CaseID), checkText("subject", command.Subject))
	if r, bad := badRequest(wrong); bad {
		return r, nil
	}
	if command.CaseID == "" {
		command.CaseID = "CASE-" + rand.Text()
	}
	submitted := caseSubmitted{
		CaseID: command.CaseID, TenantID: by.tenant, Subject: command.Subject, Status: "SUBMITTED", Version: 1,
	}
	err = pgx.BeginFunc(req.Context(), c.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(req.Context(), insertCase, submitted.CaseID, by.tenant, submitted.Subject).Scan(&submitted.SubmittedAt)
		if err != nil {
			return err
		}
		submitted.SubmittedAt = submitted.SubmittedAt.UTC()
		return c.record(req.Context(), tx, by, by.tenant, submitted.event())
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(http.StatusConflict, "CASE_EXISTS", "there is a case of this caseId: choose another"), nil
	case err != nil:
		return r, fmt.Errorf("submit case %s: %w", submitted.CaseID, err)
	}
	r = answer(http.StatusCreated, submitted)
	r.Header.Set("Location", "/cases/"+submitted.CaseID)
	return r, nil
}
