//! Customers: the people and companies a merchant bills (interface.md, Customer; completion.md section 7).

mod create;
mod find;
mod resource;

pub(super) use self::create::create;
pub(super) use self::find::find;
pub(super) use self::resource::Contact;
