//! Personal data of customers, which lives outside the log.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::ContactPart;

/// Personal data of a customer. It is stored in a side table that can be erased, never in the log, and [`fmt::Debug`]
/// writes none of it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonalData {
    /// First name.
    pub first_name: Option<String>,
    /// Last name.
    pub last_name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Phone number, E.164.
    pub phone: Option<String>,
}

impl fmt::Debug for PersonalData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PersonalData(****)")
    }
}

/// A change of a customer's personal data, written in the transaction of the fact that records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonalChange {
    /// Writes some parts; the others stay.
    Write {
        /// The parts to write.
        parts: Vec<ContactPart>,
        /// Their values; none clears a part.
        data: PersonalData,
    },
    /// Erases all of it.
    Erase,
}
