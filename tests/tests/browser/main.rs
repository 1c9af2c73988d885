//! Browser tests of the hosted checkout page, in Chromium. All tests share one instance and one browser; each creates
//! its own merchant. Screenshots of every state are written to `target/screenshots`.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod checkout_modes;
mod chromedriver;
mod embedding;
mod form_filling;
mod merchant_app;
mod page_states;
mod providers_scripts;
mod window;
