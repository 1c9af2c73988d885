//! Browser tests: the hosted page of a checkout session as its users meet it, in a real browser. All share one instance and
//! one browser; each makes a merchant of its own. Pictures of every state are kept under `target/screenshots`.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod app;
mod chromedriver;
mod frames;
mod hands;
mod looks;
mod modes;
mod window;
