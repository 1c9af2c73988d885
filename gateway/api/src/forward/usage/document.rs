//! Reads the members of a JSON document that metering needs, byte by byte. It buffers only those members, whatever the
//! document's size and depth.

/// The longest member, in bytes. A longer one is ignored.
const MAX_MEMBER: usize = 64 * 1024;

/// The longest key that is compared, in bytes.
const MAX_KEY: usize = 32;

/// A member that metering needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Usage,
    UsageMetadata,
    /// The usage of an item of a list, such as a choice.
    ItemUsage,
    /// The usage in the beginning of a stream: that of its input, and of output that has only begun.
    FirstUsage,
    Id,
    Model,
    Created,
    /// The length of what was transcribed, in seconds.
    Duration,
    /// Another document, in base64.
    Bytes,
}

/// Which of the members are read within a member of the outermost object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// All of them.
    All,
    /// All of them, in the beginning of a stream.
    Beginning,
    /// The usage alone: the others mean something else there.
    Usage,
    /// The same, in each object of a list.
    UsageOfItems,
}

impl Within {
    /// Whether `member` is read.
    pub(super) const fn reads(self, member: Member) -> bool {
        match (self, member) {
            (Self::All | Self::Beginning, _)
            | (
                Self::Usage | Self::UsageOfItems,
                Member::Usage | Member::UsageMetadata | Member::ItemUsage | Member::FirstUsage,
            ) => true,
            (
                Self::Usage | Self::UsageOfItems,
                Member::Id | Member::Model | Member::Created | Member::Duration | Member::Bytes,
            ) => false,
        }
    }

    /// What `member` is in such a place.
    pub(super) const fn name(self, member: Member) -> Member {
        match (self, member) {
            (Self::UsageOfItems, Member::Usage) => Member::ItemUsage,
            (Self::Beginning, Member::Usage) => Member::FirstUsage,
            (Self::All | Self::Beginning | Self::Usage | Self::UsageOfItems, _) => member,
        }
    }
}

/// The members to read, and the members of the outermost object to search for them as well.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberSelection {
    pub(super) members: &'static [(&'static str, Member)],
    pub(super) inside: &'static [(&'static str, Within)],
    /// Whether the document may be a list of objects, each of which is searched.
    pub(super) in_list: bool,
}

/// The container around the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    /// A searched object, before a key.
    Key,
    /// The same, between a key and the end of its value.
    Value,
    /// Any other container.
    Other,
}

/// The cursor's position relative to a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Outside,
    Inside,
    /// Right after a backslash.
    Escaped,
}

/// A scanner for one document after another.
#[derive(Debug)]
pub(super) struct Document {
    selection: MemberSelection,
    depth: usize,
    quoting: Quoting,
    /// The outermost object, an object or a list inside it, and an object in such a list.
    places: [Container; 3],
    key: Vec<u8>,
    reading_key: bool,
    /// For what the next container is searched, if it is.
    enter: Option<Within>,
    /// For what the object inside the outermost one, or in a list inside it, is searched.
    within: Within,
    /// Whether the objects of the list inside the outermost one are searched.
    in_items: bool,
    /// The member being buffered, and the depth at which it ends.
    keeping: Option<(Member, usize)>,
    kept: Vec<u8>,
    too_long: bool,
}

impl Document {
    pub(super) fn new(selection: MemberSelection) -> Self {
        Self {
            selection,
            depth: 0,
            quoting: Quoting::Outside,
            places: [Container::Other; 3],
            key: Vec::new(),
            reading_key: false,
            enter: None,
            within: Within::All,
            in_items: false,
            keeping: None,
            kept: Vec::new(),
            too_long: false,
        }
    }

    /// Discards the document so far; the next byte begins a new one.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.selection);
    }

    /// Whether a document has begun and not ended.
    pub(super) fn is_begun(&self) -> bool {
        self.depth > 0
    }

    /// Reads `bytes` and passes each complete member with the text of its value to `tell`.
    pub(super) fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(Member, &str)) {
        for &byte in bytes {
            self.byte(byte, &mut tell);
        }
    }

    fn byte(&mut self, byte: u8, tell: &mut impl FnMut(Member, &str)) {
        if self.quoting != Quoting::Outside {
            self.keep(byte);
            self.quoting = match (self.quoting, byte) {
                (Quoting::Inside, b'\\') => Quoting::Escaped,
                (Quoting::Inside, b'"') => {
                    self.reading_key = false;
                    Quoting::Outside
                }
                (Quoting::Outside | Quoting::Inside | Quoting::Escaped, _) => Quoting::Inside,
            };
            if self.quoting == Quoting::Outside {
                return;
            }
            if self.reading_key && self.key.len() <= MAX_KEY {
                self.key.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.keep(byte);
                self.quoting = Quoting::Inside;
                if self.place() == Container::Key {
                    self.reading_key = true;
                    self.key.clear();
                }
            }
            // The brackets around a list of documents and the commas between them are skipped.
            b'[' if self.depth == 0 && self.selection.in_list => {}
            b'{' | b'[' => {
                self.keep(byte);
                self.open(byte);
            }
            b'}' | b']' => {
                self.end_value(tell);
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.reset();
                } else {
                    self.keep(byte);
                }
            }
            b',' => {
                self.end_value(tell);
                self.keep(byte);
                if self.place() == Container::Value {
                    self.set_place(Container::Key);
                }
            }
            b':' => {
                self.keep(byte);
                if self.place() == Container::Key {
                    self.set_place(Container::Value);
                    self.begin_value();
                }
            }
            _ => self.keep(byte),
        }
    }

    fn open(&mut self, byte: u8) {
        let entered = self.enter.take().filter(|_| self.depth == 1);
        let looked_at = byte == b'{'
            && match self.depth {
                0 => true,
                1 => entered.is_some_and(|within| within != Within::UsageOfItems),
                2 => self.in_items,
                _ => false,
            };
        if self.depth == 1 {
            self.in_items = byte == b'[' && entered == Some(Within::UsageOfItems);
        }
        self.within = entered.unwrap_or(self.within);
        self.depth = self.depth.saturating_add(1);
        self.set_place(if looked_at { Container::Key } else { Container::Other });
    }

    fn begin_value(&mut self) {
        let key = self.key.as_slice();
        let inside = self.selection.inside.iter().find(|(name, _)| name.as_bytes() == key);
        self.enter = inside.map(|(_, within)| *within).filter(|_| self.depth == 1);
        let member = self.selection.members.iter().find(|(name, _)| name.as_bytes() == key);
        let within = if self.depth == 1 { Within::All } else { self.within };
        if let Some((_, member)) = member.filter(|(_, member)| within.reads(*member)) {
            self.keeping = Some((within.name(*member), self.depth));
            self.kept.clear();
            self.too_long = false;
        }
    }

    fn end_value(&mut self, tell: &mut impl FnMut(Member, &str)) {
        let Some((member, depth)) = self.keeping else { return };
        if depth != self.depth {
            return;
        }
        self.keeping = None;
        if let (false, Ok(text)) = (self.too_long, std::str::from_utf8(&self.kept)) {
            tell(member, text.trim());
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.keeping.is_none() {
            return;
        }
        if self.kept.len() < MAX_MEMBER {
            self.kept.push(byte);
        } else {
            self.too_long = true;
        }
    }

    fn place(&self) -> Container {
        self.depth.checked_sub(1).and_then(|at| self.places.get(at)).copied().unwrap_or(Container::Other)
    }

    fn set_place(&mut self, place: Container) {
        if let Some(here) = self.depth.checked_sub(1).and_then(|at| self.places.get_mut(at)) {
            *here = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTION: MemberSelection = MemberSelection {
        members: &[("usage", Member::Usage), ("id", Member::Id), ("model", Member::Model)],
        inside: &[("response", Within::All), ("x_groq", Within::Usage)],
        in_list: false,
    };

    fn members(json: &str, chunk: usize) -> Vec<(Member, String)> {
        members_of(SELECTION, json, chunk)
    }

    fn members_of(selection: MemberSelection, json: &str, chunk: usize) -> Vec<(Member, String)> {
        let mut document = Document::new(selection);
        let mut told = Vec::new();
        for part in json.as_bytes().chunks(chunk) {
            document.feed(part, |member, text| told.push((member, text.to_owned())));
        }
        told
    }

    #[test]
    fn only_selected_members_of_the_outermost_object_are_found() {
        let json = r#" {"a":{"usage":1,"id":"no"},"id" : "x\"},\\","b":["usage",{"usage":2}],"usage": {"n":[1,{"k":"}"}]} , "model":null}"#;
        for chunk in [1, 2, 3, 7, 1000] {
            assert_eq!(
                members(json, chunk),
                [
                    (Member::Id, r#""x\"},\\""#.to_owned()),
                    (Member::Usage, r#"{"n":[1,{"k":"}"}]}"#.to_owned()),
                    (Member::Model, "null".to_owned()),
                ],
                "chunks of {chunk}"
            );
        }
    }

    #[test]
    fn members_inside_a_named_member_are_told_too() {
        let json =
            r#"{"type":"done","response":{"id":"r","x":{"usage":0},"usage":{"a":1}},"other":{"usage":9}}"#;
        assert_eq!(
            members(json, 5),
            [(Member::Id, r#""r""#.to_owned()), (Member::Usage, r#"{"a":1}"#.to_owned())]
        );
    }

    #[test]
    fn a_member_may_be_searched_for_its_usage_alone() {
        let json = r#"{"id":"a","x_groq":{"id":"b","usage":{"n":1}},"model":"m","response":{"id":"c"}}"#;
        let expected = [
            (Member::Id, r#""a""#),
            (Member::Usage, r#"{"n":1}"#),
            (Member::Model, r#""m""#),
            (Member::Id, r#""c""#),
        ];
        for chunk in [1, 5, 1000] {
            let found = members(json, chunk);
            assert!(found.iter().map(|(member, text)| (*member, text.as_str())).eq(expected), "{found:?}");
        }
    }

    #[test]
    fn the_items_of_a_named_list_are_searched_for_their_usage_alone() {
        let selection = MemberSelection { inside: &[("choices", Within::UsageOfItems)], ..SELECTION };
        let json = r#"{"id":"a","choices":[{"index":0,"id":"b","delta":{"usage":1,"more":[{"usage":2}]},"usage":{"n":1}},
            [{"usage":3}],{"usage":{"n":2},"id":"c"},7],"model":"m","other":[{"usage":4}],"usage":null}"#;
        let expected = [
            (Member::Id, r#""a""#),
            (Member::ItemUsage, r#"{"n":1}"#),
            (Member::ItemUsage, r#"{"n":2}"#),
            (Member::Model, r#""m""#),
            (Member::Usage, "null"),
        ];
        for chunk in [1, 5, 1000] {
            let found = members_of(selection, json, chunk);
            assert!(found.iter().map(|(member, text)| (*member, text.as_str())).eq(expected), "{found:?}");
        }
        for other in [
            r#"{"choices":{"usage":1}}"#,
            r#"{"a":{"choices":[{"usage":1}]}}"#,
            r#"{"choices":7,"a":[{"usage":1}]}"#,
        ] {
            assert!(members_of(selection, other, 3).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_list_of_documents_is_looked_into_where_it_may_be_one() {
        let json = r#"[{"usage":1,"list":[{"usage":7}]}
            ,{"id":"a","usage":{"n":[2]}}]"#;
        let expected = [(Member::Usage, "1"), (Member::Id, r#""a""#), (Member::Usage, r#"{"n":[2]}"#)];
        for chunk in [1, 4, 1000] {
            let found = members_of(MemberSelection { in_list: true, ..SELECTION }, json, chunk);
            assert!(found.iter().map(|(member, text)| (*member, text.as_str())).eq(expected), "{found:?}");
            assert!(members(json, chunk).is_empty());
        }
    }

    #[test]
    fn one_document_follows_another_and_rubbish_does_no_harm() {
        let found = members("{\"usage\":1}\n{\"usage\":2}", 4);
        assert_eq!(found.len(), 2);
        for rubbish in ["]]]}}}", "[[[[", "\"", "{\"usage\"", "{:::,,,}", "nul", "{\"usage\":}"] {
            members(rubbish, 1);
        }
        assert!(members(r#"["usage", {"usage": 1}]"#, 3).is_empty());
        let deep = "[".repeat(1_000_000);
        assert!(members(&deep, 4096).is_empty());
    }

    #[test]
    fn a_member_beyond_the_bound_is_dropped_not_cut() {
        let json = format!(r#"{{"id":"{}","usage":1}}"#, "x".repeat(MAX_MEMBER));
        assert_eq!(members(&json, 100), [(Member::Usage, "1".to_owned())]);
    }
}
