//! SQL migrations of the log and the tables of the read models, applied under a lock.
