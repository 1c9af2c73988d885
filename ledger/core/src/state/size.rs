//! About how much memory a state takes. Only the texts and lists that a merchant can make long are counted, and the rest is
//! estimated.

use super::kinds::{State, StateKey};

/// What any state takes, with its key and its place.
const USUAL: usize = 512;

/// What a text takes beside its bytes.
const TEXT: usize = 32;

impl State {
    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let long = match self {
            Self::SpendKey(key) => {
                let lists = [&key.settings.allowed_models, &key.settings.allowed_providers];
                lists.into_iter().flatten().map(|list| texts(list)).sum()
            }
            Self::Request(request) => {
                let opened = &request.opened;
                let pairs = opened.metadata.iter().map(|(key, value)| 2 * TEXT + key.len() + value.len());
                let model = opened.model.as_ref().map_or(0, String::len);
                pairs.sum::<usize>() + opened.endpoint.len() + model
            }
            _ => 0,
        };
        USUAL + long
    }
}

impl StateKey {
    /// Whether a merchant can make a state of this key much longer than usual.
    pub const fn may_be_long(&self) -> bool {
        matches!(self, Self::SpendKey(_) | Self::Request(_))
    }
}

/// About how many bytes a state takes, or the knowledge that there is none.
pub(super) fn bytes_of(state: Option<&State>) -> usize {
    state.map_or(USUAL, State::bytes)
}

/// Whether a state takes much more than usual.
pub(super) fn is_long(state: Option<&State>) -> bool {
    bytes_of(state) > 8 * USUAL
}

fn texts(list: &[String]) -> usize {
    list.iter().map(|text| TEXT + text.len()).sum()
}
