//! The place of a value in a document, such as `messages[2].content`. Its text is made when it is shown: a document may
//! have a million values, deep inside of objects with long names, so each shares the steps to it with its neighbours.

use std::fmt;
use std::rc::Rc;

/// The most characters of a name that are shown.
const MAX_SHOWN_CHARS: usize = 100;

/// A path. The default is that of the document itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path(Option<Rc<Step>>);

/// The last step of a path.
#[derive(Debug)]
struct Step {
    before: Path,
    to: To,
}

#[derive(Debug)]
enum To {
    Member(Box<str>),
    Item(usize),
}

impl Path {
    /// The path of a member of the object here.
    pub(crate) fn member(&self, name: &str) -> Self {
        let shown = name.char_indices().nth(MAX_SHOWN_CHARS).map(|(end, _)| format!("{}…", &name[..end]));
        self.to(To::Member(shown.map_or_else(|| name.into(), String::into_boxed_str)))
    }

    /// The path of an item of the list here.
    pub(crate) fn item(&self, number: usize) -> Self {
        self.to(To::Item(number))
    }

    fn to(&self, to: To) -> Self {
        Self(Some(Rc::new(Step { before: self.clone(), to })))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.0 else { return f.write_str("body") };
        match (&step.to, step.before.0.is_some()) {
            (To::Member(name), true) => write!(f, "{}.{name}", step.before),
            (To::Member(name), false) => f.write_str(name),
            (To::Item(number), true) => write!(f, "{}[{number}]", step.before),
            (To::Item(number), false) => write!(f, "[{number}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_step_by_step_and_long_names_in_part() {
        let document = Path::default();
        let long = document.member(&"ä".repeat(5_000_000));
        for (path, shown) in [
            (document.clone(), "body".to_owned()),
            (document.item(7), "[7]".to_owned()),
            (document.member("messages").item(0).member("content"), "messages[0].content".to_owned()),
            (document.member(&"a".repeat(100)), "a".repeat(100)),
            (long.item(1), format!("{}…[1]", "ä".repeat(100))),
        ] {
            assert_eq!(path.to_string(), shown);
        }
    }
}
