-- The end of every generation of every read model: the gateway may read.

GRANT USAGE ON SCHEMA {schema} TO farthing_gateway;
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO farthing_gateway;
