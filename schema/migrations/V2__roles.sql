-- Roles without login. A least-privilege login of a process is a member of exactly one of them.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'farthing_gateway') THEN
        CREATE ROLE farthing_gateway NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'farthing_projector') THEN
        CREATE ROLE farthing_projector NOLOGIN;
    END IF;
    EXECUTE format('GRANT farthing_gateway, farthing_projector TO %I', current_user);
    EXECUTE format('GRANT CREATE ON DATABASE %I TO farthing_projector', current_database());
END $$;

-- The gateway appends and reads; it cannot change an event.
GRANT USAGE ON SCHEMA ledger, personal TO farthing_gateway;
GRANT INSERT, SELECT ON ledger.batches, ledger.facts, ledger.directory TO farthing_gateway;
GRANT SELECT ON ledger.events TO farthing_gateway;
GRANT SELECT, UPDATE ON ledger.heads, ledger.leases TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE ON ledger.checkpoints TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger.state, ledger.gateway_lease, ledger.gateways, ledger.idempotency
    TO farthing_gateway;
GRANT SELECT ON ledger.instance TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON personal.customer TO farthing_gateway;

-- The projector only reads the log, and owns the read models.
GRANT USAGE ON SCHEMA ledger TO farthing_projector;
GRANT SELECT ON ledger.batches, ledger.facts, ledger.events, ledger.heads TO farthing_projector;
