//! The memory of long bodies that a gateway holds whole: those that are converted, and those of the standard endpoints. It
//! is bounded for a gateway. A part is kept for requests and one for responses, and a merchant's share falls as others take
//! theirs, so that neither many requests nor a few merchants take all of it. Short bodies need no share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use farthing_core::ids::MerchantId;
use farthing_shares::{Division, Full, Ratio, Shares};

use crate::error::{ApiError, GatewayLimit};

/// The bytes of a body that need no share: as many as are read ahead of any call.
pub(crate) const FREE_BYTES: usize = 256 * 1024;

/// What memory is counted in, in bytes.
const UNIT_BYTES: usize = 64 * 1024;

const MIB: usize = 1024 * 1024 / UNIT_BYTES;

/// What the merchants' first long bodies of a kind take, in units. Nothing else takes it: each of 32 merchants gets its
/// [`BASE`].
const FOR_BASES: usize = 64 * MIB;

/// What a merchant gets first of a kind, in units: enough for a body of 1 MiB and its converted form.
const BASE: usize = 2 * MIB;

/// What all bodies take beyond that, in units. So all of them take 256 MiB. What conversions need for a moment has a bound
/// of its own.
const BEYOND: usize = 128 * MIB;

/// What of [`BEYOND`] requests leave to responses, and responses to requests, in units. A response has been paid for, so
/// requests must not take its memory.
const KEPT_FOR_OTHER_KIND: usize = 48 * MIB;

/// Beyond its [`BASE`], a merchant gets at most so many times what it leaves free. So the first one gets
/// [`OF_MERCHANT`], and each further one four fifths of what is left, at most.
const TIMES_FREE: usize = 4;

/// The most that a merchant gets of a kind, in units.
const OF_MERCHANT: usize = 64 * MIB;

/// What a long body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// A request, or its converted form.
    Request,
    /// A response that is converted, or one of a standard endpoint until its caller has received it.
    Response,
}

impl BodyKind {
    /// All of them, with their names in the metrics.
    pub(crate) const NAMED: [(Self, &'static str); 2] =
        [(Self::Request, "request"), (Self::Response, "response")];
}

/// How the memory of each kind is divided among merchants, in units.
const DIVISION: Division = Division {
    of_one: OF_MERCHANT,
    base: BASE,
    for_bases: FOR_BASES,
    common: BEYOND - KEPT_FOR_OTHER_KIND,
    times_free: Ratio { of: TIMES_FREE, to: 1 },
};

/// What is taken.
#[derive(Debug)]
struct Taken {
    requests: Shares<MerchantId>,
    responses: Shares<MerchantId>,
}

impl Taken {
    const fn of(&self, kind: BodyKind) -> &Shares<MerchantId> {
        match kind {
            BodyKind::Request => &self.requests,
            BodyKind::Response => &self.responses,
        }
    }

    const fn with_other(&mut self, kind: BodyKind) -> (&mut Shares<MerchantId>, &Shares<MerchantId>) {
        match kind {
            BodyKind::Request => (&mut self.requests, &self.responses),
            BodyKind::Response => (&mut self.responses, &self.requests),
        }
    }

    fn take(&mut self, merchant_id: MerchantId, kind: BodyKind, more: usize) -> Result<(), MemoryFull> {
        let (own, other) = self.with_other(kind);
        let for_kind = BEYOND - other.taken_of_common().max(KEPT_FOR_OTHER_KIND);
        own.take_of(for_kind, merchant_id, more).map_err(|full| match full {
            Full::All => MemoryFull::All,
            Full::Owner => MemoryFull::Merchants,
        })
    }

    fn give_back(&mut self, merchant_id: MerchantId, kind: BodyKind, units: usize) {
        self.with_other(kind).0.give_back(&merchant_id, units);
    }
}

/// The memory of a gateway.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory(Arc<Mutex<Taken>>);

impl Default for BodyMemory {
    fn default() -> Self {
        let [requests, responses] = [DIVISION; 2].map(Shares::new);
        Self(Arc::new(Mutex::new(Taken { requests, responses })))
    }
}

impl BodyMemory {
    /// The share of one body of this merchant. It is empty.
    pub(crate) fn share(&self, merchant_id: MerchantId, kind: BodyKind) -> MemoryShare {
        MemoryShare { memory: self.clone(), merchant_id, kind, units: 0 }
    }

    /// The bytes that bodies of this kind take.
    pub(crate) fn bytes(&self, kind: BodyKind) -> f64 {
        let units = self.lock().of(kind).taken();
        u32::try_from(units * UNIT_BYTES).map_or(f64::INFINITY, f64::from)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a share does not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryFull {
    /// The bodies of all merchants leave no more to this one.
    #[error("the memory of long bodies is full")]
    All,
    /// The merchant's bodies have all that is for one merchant.
    #[error("the memory of the merchant's long bodies is full")]
    Merchants,
}

impl From<MemoryFull> for ApiError {
    fn from(full: MemoryFull) -> Self {
        match full {
            MemoryFull::All => Self::overloaded(GatewayLimit::BodyMemory),
            MemoryFull::Merchants => Self::overloaded_by_merchant(GatewayLimit::BodyMemoryOfMerchant),
        }
    }
}

/// The memory of one body, until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    memory: BodyMemory,
    merchant_id: MerchantId,
    kind: BodyKind,
    units: usize,
}

impl MemoryShare {
    /// Makes room for a body of so many bytes in all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let units = bytes.saturating_sub(FREE_BYTES).div_ceil(UNIT_BYTES);
        let more = units.saturating_sub(self.units);
        if more > 0 {
            self.memory.lock().take(self.merchant_id, self.kind, more)?;
            self.units = units;
        }
        Ok(())
    }

    /// `bytes` beside this body, which have a share of their own as long as they exist.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> Result<Bytes, MemoryFull> {
        if bytes.len() <= FREE_BYTES {
            return Ok(bytes.into());
        }
        let mut share = self.memory.share(self.merchant_id, self.kind);
        share.grow_to(bytes.len())?;
        Ok(share.kept_by(bytes))
    }

    /// `bytes`, which keep the share as long as they exist.
    pub(crate) fn kept_by(self, bytes: impl Into<Bytes>) -> Bytes {
        Bytes::from_owner(Kept { bytes: bytes.into(), _share: self })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.units > 0 {
            self.memory.lock().give_back(self.merchant_id, self.kind, self.units);
        }
    }
}

/// Bytes with the share that they take.
struct Kept {
    bytes: Bytes,
    _share: MemoryShare,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Does `work` on a body of `length` bytes, of which there is much if the body is long. Other tasks of this thread then go
/// on at another one.
pub(crate) fn beside_others<T>(length: usize, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let has_threads =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if length > FREE_BYTES && has_threads { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use ulid::Ulid;

    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, number))
    }

    /// Whether `work` lets other tasks of its thread go on at another one. A set of local tasks cannot be moved, so such
    /// work panics in one.
    pub(crate) fn is_beside_others(work: impl FnOnce()) -> bool {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(async { catch_unwind(AssertUnwindSafe(work)).is_err() }))
    }

    #[test]
    fn work_on_a_long_body_lets_other_tasks_go_on() {
        assert!(is_beside_others(|| beside_others(FREE_BYTES + 1, || ())));
        assert!(!is_beside_others(|| beside_others(FREE_BYTES, || ())));
    }

    const BYTES_OF_MERCHANT: usize = OF_MERCHANT * UNIT_BYTES;

    /// The units that bodies of both kinds take.
    fn taken(memory: &BodyMemory) -> usize {
        BodyKind::NAMED.iter().map(|(kind, _)| memory.lock().of(*kind).taken()).sum()
    }

    /// The units that a merchant gets of a kind if it takes one after the other until it is refused.
    fn take_all(memory: &BodyMemory, number: u128, kind: BodyKind) -> (Vec<MemoryShare>, usize) {
        let mut shares = Vec::new();
        loop {
            let mut share = memory.share(merchant(number), kind);
            if share.grow_to(FREE_BYTES + 1).is_err() {
                let units = shares.len();
                return (shares, units);
            }
            shares.push(share);
        }
    }

    #[test]
    fn a_merchant_has_a_part_of_the_memory_and_its_bytes_keep_it() {
        let memory = BodyMemory::default();
        for (kind, _) in BodyKind::NAMED {
            let mut share = memory.share(merchant(1), kind);
            share.grow_to(FREE_BYTES + BYTES_OF_MERCHANT / 2).unwrap();
            share.grow_to(FREE_BYTES + BYTES_OF_MERCHANT).unwrap();
            let mut another = memory.share(merchant(1), kind);
            assert_eq!(another.grow_to(FREE_BYTES), Ok(()), "a short body needs no share");
            assert_eq!(another.grow_to(FREE_BYTES + 1), Err(MemoryFull::Merchants));
            let kept = share.kept_by(vec![7; 3]);
            let slice = kept.slice(1..);
            drop(kept);
            assert_eq!(another.grow_to(FREE_BYTES + 1), Err(MemoryFull::Merchants), "a part keeps the share");
            assert_eq!(&slice[..], [7, 7]);
            drop(slice);
            assert_eq!(another.grow_to(FREE_BYTES + 1), Ok(()));
            assert_eq!(another.grow_to(usize::MAX), Err(MemoryFull::Merchants));
        }
        assert_eq!(taken(&memory), 0);
    }

    #[test]
    fn each_further_merchant_gets_less_and_none_less_than_its_base() {
        for (kind, _) in BodyKind::NAMED {
            let memory = BodyMemory::default();
            let greedy: Vec<_> = (1..=20).map(|number| take_all(&memory, number, kind)).collect();
            let units: Vec<_> = greedy.iter().map(|(_, units)| *units).collect();
            assert_eq!(units[0], OF_MERCHANT);
            assert!(units.is_sorted_by(|before, after| before >= after), "{units:?}");
            assert!(units[1] > 5 * BASE && units.iter().all(|units| *units >= BASE), "{units:?}");
            drop(greedy);
            assert_eq!(taken(&memory), 0);
        }
    }

    /// The merchants for whose bases there is memory of their own.
    const WITH_BASE: u128 = (FOR_BASES / BASE) as u128;

    #[test]
    fn whatever_bodies_greedy_merchants_hold_others_get_usual_bodies_of_both_kinds() {
        const GREEDY: u128 = 4;
        let (requests, responses) = (BodyKind::Request, BodyKind::Response);
        for order in [[requests, responses], [responses, requests]] {
            let memory = BodyMemory::default();
            let mut held = Vec::new();
            for kind in order {
                held.extend((0..GREEDY).map(|number| take_all(&memory, number, kind).0));
            }
            // A body of 1 MiB and its converted form, which is a little longer.
            let (usual, converted) = (1024 * 1024, 1100 * 1024);
            for number in GREEDY..WITH_BASE {
                for (kind, lengths) in [(requests, vec![usual, converted]), (responses, vec![converted])] {
                    for length in lengths {
                        let mut share = memory.share(merchant(number), kind);
                        assert_eq!(share.grow_to(length), Ok(()), "{kind:?} of merchant {number}");
                        held.push(vec![share]);
                    }
                }
            }
        }
    }

    #[test]
    fn requests_and_responses_leave_each_other_what_is_kept() {
        for [(kind, _), (other, _)] in [BodyKind::NAMED, [BodyKind::NAMED[1], BodyKind::NAMED[0]]] {
            let memory = BodyMemory::default();
            let held: Vec<_> = (1..=200).map(|number| take_all(&memory, number, kind).0).collect();
            assert_eq!(memory.lock().of(kind).taken_of_common(), BEYOND - KEPT_FOR_OTHER_KIND);
            // The longest response that is converted has room, for the first merchant.
            let mut longest = memory.share(merchant(1), other);
            assert_eq!(longest.grow_to(32 * 1024 * 1024), Ok(()));
            let of_others: Vec<_> = (1..=200).map(|number| take_all(&memory, number, other).0).collect();
            assert_eq!(memory.lock().of(other).taken_of_common(), KEPT_FOR_OTHER_KIND);
            drop((held, longest));
            // What others have left is free for all.
            let (_more, units) = take_all(&memory, 300, other);
            assert!(units > BASE);
            drop(of_others);
        }
    }

    #[test]
    fn all_bodies_together_never_take_more_than_there_is() {
        let memory = BodyMemory::default();
        let mut shares = Vec::new();
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [number, units, place, kind] =
                [33, 40, 48, 56].map(|by| usize::from((random >> by).to_le_bytes()[0]));
            if number % 3 == 0 && !shares.is_empty() {
                shares.swap_remove(place % shares.len());
                continue;
            }
            let (kind, _) = BodyKind::NAMED[kind % 2];
            let mut share = memory.share(merchant((number % 100) as u128), kind);
            if share.grow_to(FREE_BYTES + (units % 200) * UNIT_BYTES).is_ok() {
                shares.push(share);
            }
            let taken: usize = shares.iter().map(|share| share.units).sum();
            assert!(taken <= 2 * FOR_BASES + BEYOND);
            assert_eq!(self::taken(&memory), taken);
        }
        drop(shares);
        assert_eq!(taken(&memory), 0);
    }
}
