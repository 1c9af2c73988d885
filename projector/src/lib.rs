//! The projection engine and the read models.
