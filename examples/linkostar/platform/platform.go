// Package platform is a hub platform that tells suppliers about their hubs and devices. Each change of its own tables and the
// event about it are written in one transaction:
//
//	Transact( hub_instance, device_instance, device_activation_event + Enqueue ) → log → relay → supplier
//	                            ↑ sync_status ───────────────── OnSettle ──────────────┘
//
// There are two outboxes over the one log, told apart by the topic: supplier registration and activation. What came of a
// delivery is written into the row that it is about, in the transaction of the relay's settle: see Settled.
package platform

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Topics of the two outboxes, and the names of the destinations that carry them.
const (
	RegistrationTopic = "linkostar.registration"
	ActivationTopic   = "linkostar.activation"

	Registration = "supplier-registration"
	Activations  = "activation"
)

// EndpointHeader is the event header that names the endpoint: see Endpoint.
const EndpointHeader = "endpoint"

// Kind is what a supplier has a URL of its own for.
type Kind string

const (
	HubKind        Kind = "hub"
	DeviceKind     Kind = "device"
	ActivationKind Kind = "activation"
)

// Endpoint names where a supplier takes something: acme/hub.
func Endpoint(supplier string, k Kind) string { return supplier + "/" + string(k) }

// Enqueuer writes events in the caller's transaction: *outbox.Outbox.
type Enqueuer interface {
	Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error)
}

// Platform is the service. Its methods may be called by several goroutines at once.
type Platform struct {
	db        *sql.DB
	box       Enqueuer
	sql       statements
	committed func()
}

// New returns the service, whose tables must be there: see CreateTables. committed is called after each commit: it wakes the
// relay, which delivers from then on; nothing is delivered from inside a transaction.
func New(db *sql.DB, d outbox.Dialect, box Enqueuer, committed func()) *Platform {
	return &Platform{db: db, box: box, sql: statementsOf(d), committed: committed}
}

// CreateTables makes the platform's own tables. Those of the outbox come from schema.Migrate.
func CreateTables(ctx context.Context, db *sql.DB, d outbox.Dialect) error {
	if _, err := db.ExecContext(ctx, statementsOf(d).schema); err != nil {
		return fmt.Errorf("create the tables of the platform: %w", err)
	}
	return nil
}

// Transact runs change in a transaction and commits it. With an error of change nothing has happened: no row, no event.
func (p *Platform) Transact(ctx context.Context, change func(tx *sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := change(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	p.committed()
	return nil
}

// RegisterHub stores a hub and tells its supplier.
func (p *Platform) RegisterHub(ctx context.Context, tx *sql.Tx, h Hub) error {
	if !json.Valid([]byte(h.Metadata)) {
		return fmt.Errorf("hub %s: metadata is no JSON: pass on what the supplier gave, {} if nothing", h.UUID)
	}
	_, err := tx.ExecContext(ctx, p.sql.hub, h.UUID, h.Supplier, h.SupplierUUID, h.TenantUUID, h.BundleUUID, h.Identifier, h.Type,
		h.Metadata)
	if err != nil {
		return fmt.Errorf("store hub %s: %w", h.UUID, err)
	}
	return p.tell(ctx, tx, h, outbox.Event{
		ID: h.UUID, Topic: RegistrationTopic, Key: h.UUID, Type: "HubRegistered", AggregateType: "hub_instance",
		AggregateID: h.UUID, Headers: map[string]string{EndpointHeader: Endpoint(h.Supplier, HubKind)},
	})
}

// RegisterDevice stores a device, numbers it, and tells its supplier.
func (p *Platform) RegisterDevice(ctx context.Context, tx *sql.Tx, d Device) error {
	err := tx.QueryRowContext(ctx, p.sql.device, d.UUID, d.VersionUUID, d.Supplier, d.SupplierUUID, d.TenantUUID, d.FirstSeenHubUUID,
		d.HubUUID, d.MACAddress, d.Source).Scan(&d.InstanceID)
	if err != nil {
		return fmt.Errorf("store device %s: %w", d.UUID, err)
	}
	return p.tell(ctx, tx, d, outbox.Event{
		ID: d.UUID, Topic: RegistrationTopic, Key: d.UUID, Type: "DeviceRegistered", AggregateType: "device_instance",
		AggregateID: d.UUID, Headers: map[string]string{EndpointHeader: Endpoint(d.Supplier, DeviceKind)},
	})
}

// ErrNoDevice says that an activation is of a device that is not there.
var ErrNoDevice = errors.New("there is no such device: register it first")

// Activate stores an activation of a device and tells its supplier. Activations of one device arrive in their order.
func (p *Platform) Activate(ctx context.Context, tx *sql.Tx, activationUUID, deviceUUID string) error {
	a := Activation{UUID: activationUUID, DeviceUUID: deviceUUID}
	err := tx.QueryRowContext(ctx, p.sql.countActivation, deviceUUID).
		Scan(&a.Number, &a.DeviceInstanceID, &a.Supplier, &a.SupplierUUID, &a.TenantUUID)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoDevice
	}
	if err != nil {
		return fmt.Errorf("activate device %s: %w", deviceUUID, err)
	}
	if _, err := tx.ExecContext(ctx, p.sql.activation, a.UUID, a.DeviceUUID, a.Number); err != nil {
		return fmt.Errorf("store activation %s: %w", a.UUID, err)
	}
	return p.tell(ctx, tx, a, outbox.Event{
		ID: a.UUID, Topic: ActivationTopic, Key: a.DeviceUUID, Type: "DeviceActivated", AggregateType: "device_activation_event",
		AggregateID: a.UUID, AggregateVersion: a.Number,
		Headers: map[string]string{EndpointHeader: Endpoint(a.Supplier, ActivationKind)},
	})
}

// tell writes the event in the transaction of the row that it is about.
func (p *Platform) tell(ctx context.Context, tx *sql.Tx, body any, e outbox.Event) (err error) {
	if e.Payload, err = json.Marshal(body); err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.ID, err)
	}
	_, err = p.box.Enqueue(ctx, tx, e)
	return err
}
