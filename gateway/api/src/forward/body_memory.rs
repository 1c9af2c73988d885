//! The memory of bodies that must be whole before they pass, because they are converted. It is bounded for a gateway and
//! for each merchant, so that one merchant's long bodies leave room for those of others. Short bodies need no share.

use std::sync::Arc;

use bytes::Bytes;
use farthing_core::ids::MerchantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::limit_per::LimitPer;

/// The bytes of a body that need no share: as many as are read ahead of any call.
const FREE_BYTES: usize = 256 * 1024;

/// What memory is counted in, in bytes.
const UNIT_BYTES: usize = 64 * 1024;

/// The memory of all bodies, in bytes. A conversion needs up to three times as much for a moment.
const ALL_BYTES: usize = 256 * 1024 * 1024;

/// The memory of the bodies of one merchant, in bytes.
const MERCHANT_BYTES: usize = 64 * 1024 * 1024;

/// The memory of a gateway.
#[derive(Debug)]
pub(super) struct BodyMemory {
    all: Arc<Semaphore>,
    of_merchants: LimitPer<MerchantId>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(ALL_BYTES / UNIT_BYTES)),
            of_merchants: LimitPer::new(MERCHANT_BYTES / UNIT_BYTES),
        }
    }
}

impl BodyMemory {
    /// The share of one body of this merchant. It is empty.
    pub(super) fn share(&self, merchant_id: MerchantId) -> MemoryShare {
        MemoryShare {
            all: Arc::clone(&self.all),
            of_merchant: self.of_merchants.of(merchant_id),
            taken: None,
            units: 0,
        }
    }
}

/// Why a share does not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MemoryFull {
    /// The bodies of all merchants have all there is.
    #[error("the memory of long bodies is full")]
    All,
    /// The merchant's bodies have all that is for one merchant.
    #[error("the memory of the merchant's long bodies is full")]
    Merchants,
}

impl From<MemoryFull> for ApiError {
    fn from(full: MemoryFull) -> Self {
        match full {
            MemoryFull::All => Self::overloaded("memory of long bodies"),
            MemoryFull::Merchants => Self::overloaded_by_merchant("memory of one merchant's long bodies"),
        }
    }
}

/// The memory of one body, until it is dropped.
#[derive(Debug)]
pub(super) struct MemoryShare {
    all: Arc<Semaphore>,
    of_merchant: Arc<Semaphore>,
    /// What is taken of the merchant's memory, and of all.
    taken: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    units: usize,
}

impl MemoryShare {
    /// Makes room for a body of so many bytes in all.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let units = bytes.saturating_sub(FREE_BYTES).div_ceil(UNIT_BYTES);
        let more = u32::try_from(units.saturating_sub(self.units)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let of_merchant = Arc::clone(&self.of_merchant).try_acquire_many_owned(more);
        let of_merchant = of_merchant.map_err(|_| MemoryFull::Merchants)?;
        let of_all = Arc::clone(&self.all).try_acquire_many_owned(more).map_err(|_| MemoryFull::All)?;
        match &mut self.taken {
            Some((merchants, all)) => {
                merchants.merge(of_merchant);
                all.merge(of_all);
            }
            None => self.taken = Some((of_merchant, of_all)),
        }
        self.units = units;
        Ok(())
    }

    /// `bytes`, which keep the share as long as they exist.
    pub(super) fn kept_by(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Kept { bytes, _share: self })
    }
}

/// Bytes with the share that they take.
struct Kept {
    bytes: Vec<u8>,
    _share: MemoryShare,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Does `work` on a body of `length` bytes, of which there is much if the body is long. Other tasks of this thread then go
/// on at another one.
pub(super) fn beside_others<T>(length: usize, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let has_threads =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if length > FREE_BYTES && has_threads { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::turns::tests::merchant;
    use super::*;

    /// Whether `work` lets other tasks of its thread go on at another one. A set of local tasks cannot be moved, so such
    /// work panics in one.
    pub(in crate::forward) fn is_beside_others(work: impl FnOnce()) -> bool {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(async { catch_unwind(AssertUnwindSafe(work)).is_err() }))
    }

    #[test]
    fn work_on_a_long_body_lets_other_tasks_go_on() {
        assert!(is_beside_others(|| beside_others(FREE_BYTES + 1, || ())));
        assert!(!is_beside_others(|| beside_others(FREE_BYTES, || ())));
    }

    #[test]
    fn a_merchant_has_a_part_of_the_memory_and_all_have_no_more_than_there_is() {
        let memory = BodyMemory::default();
        let mut shares = Vec::new();
        for number in 1..=(ALL_BYTES / MERCHANT_BYTES) as u128 {
            let mut share = memory.share(merchant(number));
            share.grow_to(FREE_BYTES + MERCHANT_BYTES / 2).unwrap();
            share.grow_to(FREE_BYTES + MERCHANT_BYTES).unwrap();
            let mut another = memory.share(merchant(number));
            assert_eq!(another.grow_to(FREE_BYTES), Ok(()), "a short body needs no share");
            assert_eq!(another.grow_to(FREE_BYTES + 1), Err(MemoryFull::Merchants));
            shares.push(share);
        }
        let mut others = memory.share(merchant(99));
        assert_eq!(others.grow_to(FREE_BYTES + 1), Err(MemoryFull::All));
        let kept = shares.pop().unwrap().kept_by(vec![7; 3]);
        let slice = kept.slice(1..);
        drop(kept);
        assert_eq!(
            others.grow_to(FREE_BYTES + 1),
            Err(MemoryFull::All),
            "a part of the bytes keeps the share"
        );
        assert_eq!(&slice[..], [7, 7]);
        drop(slice);
        assert_eq!(others.grow_to(FREE_BYTES + MERCHANT_BYTES), Ok(()));
        // What a refused share had taken of one limit is free again.
        drop((others, shares));
        let mut all = memory.share(merchant(1));
        assert_eq!(all.grow_to(FREE_BYTES + MERCHANT_BYTES), Ok(()));
    }
}
