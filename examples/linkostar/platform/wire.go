package platform

// What suppliers are sent. The names and the order of the fields are a contract; the row's uuid is the event's id, which the
// supplier finds in the idempotency key as well, so that the signature, which covers the body alone, covers it too.

// Hub is a hub as its supplier is told of it.
type Hub struct {
	UUID         string `json:"hub_uuid"`
	SupplierUUID string `json:"supplier_uuid"`
	TenantUUID   string `json:"tenant_uuid"`
	BundleUUID   string `json:"bundle_uuid"`
	Identifier   string `json:"hub_identifier"`
	Type         string `json:"hub_type"` // OPEN or CLOSED
	Metadata     string `json:"metadata"` // JSON in a string, as the supplier gave it
	Supplier     string `json:"-"`        // the name that the endpoints have
}

// Sources of a device.
const (
	BundleAutoProvision = "bundle_auto_provision"
	TenantCreate        = "tenant_create"
)

// Device is a device as its supplier is told of it. RegisterDevice sets InstanceID.
type Device struct {
	InstanceID       int64   `json:"device_instance_id"`
	UUID             string  `json:"device_uuid"`
	VersionUUID      string  `json:"device_version_uuid"`
	TenantUUID       string  `json:"tenant_uuid"`
	FirstSeenHubUUID *string `json:"first_seen_hub_uuid"`
	HubUUID          *string `json:"hub_uuid"`
	SupplierUUID     string  `json:"supplier_uuid"`
	MACAddress       string  `json:"mac_address"`
	Source           string  `json:"source"`
	Supplier         string  `json:"-"`
}

// Activation is an activation of a device as its supplier is told of it.
type Activation struct {
	UUID             string `json:"activation_uuid"`
	Number           int64  `json:"activation_number"` // of the device's, from 1
	DeviceInstanceID int64  `json:"device_instance_id"`
	DeviceUUID       string `json:"device_uuid"`
	TenantUUID       string `json:"tenant_uuid"`
	SupplierUUID     string `json:"supplier_uuid"`
	Supplier         string `json:"-"`
}
