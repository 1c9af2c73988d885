//! Attacks from outside, by kind. Each test is an attack with its neighbouring cases; some show what must still pass.

mod browsers;
mod live_mode;
mod managed_headers;
mod priced_apart;
mod stopped_keys;
mod unread;
