-- The hub platform's own tables, beside the outbox's. Running it again does no harm.
--
-- sync_status is what the supplier knows of a row: PENDING until it has answered. It is set in the transaction in which the relay
-- settles the delivery (settle_*.sql), so it says SYNCED or SENT exactly when outbox_delivery says PUBLISHED.

create table if not exists hub_instance (
  hub_uuid       uuid        primary key,
  supplier       text        not null,                        -- its name in the configuration
  supplier_uuid  uuid        not null,
  tenant_uuid    uuid        not null,
  bundle_uuid    uuid        not null,
  hub_identifier text        not null,
  hub_type       text        not null,
  metadata       text        not null,                        -- the supplier's own JSON, passed on as it is
  sync_status    text        not null default 'PENDING',
  sync_error     text,                                        -- the last code: HTTP_422, TIMEOUT, EXHAUSTED
  synced_at      timestamptz,
  created_at     timestamptz not null default now(),
  constraint hub_type check (hub_type in ('OPEN', 'CLOSED')),
  constraint hub_sync check (sync_status in ('PENDING', 'SYNCED', 'FAILED', 'DEAD')),
  constraint hub_synced check ((sync_status = 'SYNCED') = (synced_at is not null))
);

create table if not exists device_instance (
  device_instance_id  bigint      generated always as identity primary key,
  device_uuid         uuid        not null unique,
  device_version_uuid uuid        not null,
  supplier            text        not null,
  supplier_uuid       uuid        not null,
  tenant_uuid         uuid        not null,
  first_seen_hub_uuid uuid        references hub_instance (hub_uuid),
  hub_uuid            uuid        references hub_instance (hub_uuid),
  mac_address         text        not null,
  source              text        not null,
  activations         bigint      not null default 0,         -- numbers its activations
  sync_status         text        not null default 'PENDING',
  sync_error          text,
  synced_at           timestamptz,
  created_at          timestamptz not null default now(),
  constraint device_source check (source in ('bundle_auto_provision', 'tenant_create')),
  constraint device_sync check (sync_status in ('PENDING', 'SYNCED', 'FAILED', 'DEAD')),
  constraint device_synced check ((sync_status = 'SYNCED') = (synced_at is not null))
);

create table if not exists device_activation_event (
  activation_uuid   uuid        primary key,
  device_uuid       uuid        not null references device_instance (device_uuid),
  activation_number bigint      not null,
  sync_status       text        not null default 'PENDING',
  sync_error        text,
  sent_at           timestamptz,
  created_at        timestamptz not null default now(),
  constraint activation_number unique (device_uuid, activation_number),
  constraint activation_sync check (sync_status in ('PENDING', 'SENT', 'FAILED', 'DEAD', 'REJECTED_BALANCE')),
  constraint activation_sent check ((sync_status = 'SENT') = (sent_at is not null))
);
