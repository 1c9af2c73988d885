//! Personal data of customers, which lives outside the log.

use crate::event::ContactPart;

/// Personal data of a customer; lives in a side table that can be erased, never in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

/// What becomes of a customer's personal data, in the transaction of the fact that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonalChange {
    /// These parts are as in the data from now on; the others stay.
    Write {
        /// Which parts.
        parts: Vec<ContactPart>,
        /// What they are; none where a part is cleared.
        data: PersonalData,
    },
    /// Nothing of it is kept.
    Erase,
}
