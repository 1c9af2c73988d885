//! The limits of a gateway that a request can reach: then it is answered with 503.

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatewayLimit {
    /// Commands that wait for the leader of a partition.
    Queue,
    /// Calls in flight.
    Calls,
    /// Those of one merchant.
    CallsOfMerchant,
    /// Look-ups of unknown keys at once.
    KeyLookups,
    /// Look-ups of host names of one merchant at once.
    NameLookups,
    /// Memory of long bodies.
    BodyMemory,
    /// The share of one merchant in it.
    BodyMemoryOfMerchant,
    /// Conversions of one merchant at once.
    ConversionsOfMerchant,
    /// Reads at once.
    Reads,
    /// Those of one merchant.
    ReadsOfMerchant,
}

impl GatewayLimit {
    /// All of them.
    pub(crate) const ALL: [Self; 10] = [
        Self::Queue,
        Self::Calls,
        Self::CallsOfMerchant,
        Self::KeyLookups,
        Self::NameLookups,
        Self::BodyMemory,
        Self::BodyMemoryOfMerchant,
        Self::ConversionsOfMerchant,
        Self::Reads,
        Self::ReadsOfMerchant,
    ];

    /// Its name in the log and in the metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queue => "the appender's queue",
            Self::Calls => "calls in flight",
            Self::CallsOfMerchant => "calls of one merchant in flight",
            Self::KeyLookups => "look-ups of keys",
            Self::NameLookups => "look-ups of host names",
            Self::BodyMemory => "memory of long bodies",
            Self::BodyMemoryOfMerchant => "memory of one merchant's long bodies",
            Self::ConversionsOfMerchant => "conversions of one merchant",
            Self::Reads => "reads at once",
            Self::ReadsOfMerchant => "reads at once of one merchant",
        }
    }
}
