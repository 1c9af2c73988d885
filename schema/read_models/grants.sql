-- What every generation of every read model ends with: the gateway may look.

GRANT USAGE ON SCHEMA {schema} TO farthing_gateway;
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO farthing_gateway;
