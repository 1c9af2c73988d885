//! Divides what all merchants use of a gateway, such as calls in flight or memory, so that some of them leave enough to
//! the others.
//!
//! A part is kept for what each owner takes first, its base. Of the rest an owner takes at most a multiple of what it
//! leaves free, so that its share falls as others take theirs.

mod slots;

use std::collections::HashMap;
use std::hash::Hash;

pub use self::slots::{Slot, Slots};

/// How units are divided among owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The most units of one owner.
    pub of_one: usize,
    /// The units that an owner takes first.
    pub base: usize,
    /// The units that are kept for bases.
    pub for_bases: usize,
    /// All other units. Bases beyond those for which units are kept take of them, too.
    pub common: usize,
    /// Of [`Self::common`], an owner takes at most so many times what it leaves free.
    pub times_free: Ratio,
}

/// A ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// The numerator.
    pub of: usize,
    /// The denominator. If it is 0, nothing exceeds the ratio.
    pub to: usize,
}

/// The owners for whose bases [`Division::of`] keeps units.
pub const OWNERS_WITH_BASE: usize = 32;

/// The part of all units that [`Division::of`] keeps for bases, as its divisor.
const FOR_BASES: usize = 4;

impl Division {
    /// Divides `all` units. An owner that is alone gets `of_one` of them, if so many are left beside what is kept for bases: a
    /// quarter of all. There are bases for [`OWNERS_WITH_BASE`] owners, or for a quarter of the units if these are fewer.
    pub const fn of(all: usize, of_one: usize) -> Self {
        let for_bases = all / FOR_BASES;
        let common = all - for_bases;
        let base = match for_bases / OWNERS_WITH_BASE {
            0 => 1,
            base => base,
        };
        let of_common = of_one.saturating_sub(base);
        // Where nothing is kept, the first owner's base is one of the common units, too.
        let to = if for_bases == 0 { 0 } else { common.saturating_sub(of_common) };
        let times_free = Ratio { of: of_common, to };
        Self { of_one, base, for_bases, common, times_free }
    }
}

/// What is taken of the units of a [`Division`], by owner.
#[derive(Debug)]
pub struct Shares<O> {
    division: Division,
    /// The sum of what each owner takes up to its base.
    bases: usize,
    /// What owners take beyond that.
    beyond: usize,
    /// Holds no owner without units.
    by_owner: HashMap<O, usize>,
}

/// Why an owner gets no more units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All owners together leave no more to this one.
    All,
    /// The owner has the most that is for one.
    Owner,
}

impl<O: Eq + Hash> Shares<O> {
    /// Nothing is taken.
    pub fn new(division: Division) -> Self {
        Self { division, bases: 0, beyond: 0, by_owner: HashMap::new() }
    }

    /// Takes `more` units for `owner`. If it is refused, nothing changes.
    pub fn take(&mut self, owner: O, more: usize) -> Result<(), Full> {
        self.take_of(self.division.common, owner, more)
    }

    /// The same if there are `common` units in place of [`Division::common`].
    pub fn take_of(&mut self, common: usize, owner: O, more: usize) -> Result<(), Full> {
        if more == 0 {
            return Ok(());
        }
        let before = self.taken_by(&owner);
        let own = before.saturating_add(more);
        (self.bases, self.beyond) = self.granted(common, before, own)?;
        self.by_owner.insert(owner, own);
        Ok(())
    }

    /// The most further units that `owner` gets now.
    pub fn room(&self, owner: &O) -> usize {
        let before = self.taken_by(owner);
        let is_granted = |own| self.granted(self.division.common, before, own).is_ok();
        // Who gets so many also gets fewer.
        let (mut granted, mut refused) = (before, self.division.of_one + 1);
        while refused > granted + 1 {
            let own = usize::midpoint(granted, refused);
            if is_granted(own) {
                granted = own;
            } else {
                refused = own;
            }
        }
        granted - before
    }

    /// The sums of bases and of what is beyond them when an owner has `own` units in place of `before`, if it gets them.
    fn granted(&self, common: usize, before: usize, own: usize) -> Result<(usize, usize), Full> {
        if own > self.division.of_one {
            return Err(Full::Owner);
        }
        let (bases, beyond) = self.with(before, own);
        let of_common = self.of_common(bases, beyond);
        // What needs nothing of the common units is for this owner.
        if of_common > self.taken_of_common() {
            let left = common.checked_sub(of_common).ok_or(Full::All)?;
            if self.exceeds_share(self.beyond_base(own), left) {
                return Err(Full::All);
            }
        }
        Ok((bases, beyond))
    }

    /// Gives `units` of `owner` back.
    pub fn give_back(&mut self, owner: &O, units: usize) {
        let Some(own) = self.by_owner.get_mut(owner) else { return };
        let before = *own;
        *own = before.saturating_sub(units);
        let own = *own;
        if own == 0 {
            self.by_owner.remove(owner);
        }
        (self.bases, self.beyond) = self.with(before, own);
    }

    /// The units that `owner` has.
    pub fn taken_by(&self, owner: &O) -> usize {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    /// The units that all owners have.
    pub fn taken(&self) -> usize {
        self.bases + self.beyond
    }

    /// What is taken of the common units.
    pub fn taken_of_common(&self) -> usize {
        self.of_common(self.bases, self.beyond)
    }

    fn of_common(&self, bases: usize, beyond: usize) -> usize {
        beyond + bases.saturating_sub(self.division.for_bases)
    }

    /// The sums of bases and of what is beyond them when an owner has `own` units in place of `before`.
    fn with(&self, before: usize, own: usize) -> (usize, usize) {
        let base = self.division.base;
        let bases = self.bases + own.min(base) - before.min(base);
        let beyond = self.beyond + self.beyond_base(own) - self.beyond_base(before);
        (bases, beyond)
    }

    const fn beyond_base(&self, own: usize) -> usize {
        own.saturating_sub(self.division.base)
    }

    /// Whether `units` are too many beside those that are `left`.
    const fn exceeds_share(&self, units: usize, left: usize) -> bool {
        let Ratio { of, to } = self.division.times_free;
        units.saturating_mul(to) > left.saturating_mul(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The units that `owner` gets if it takes one after the other until it is refused.
    fn take_all(shares: &mut Shares<usize>, owner: usize) -> usize {
        std::iter::from_fn(|| shares.take(owner, 1).ok()).count()
    }

    #[test]
    fn an_owner_that_is_alone_gets_the_most_for_one() {
        for (all, of_one) in
            [(4_096, 2_048), (4_096, 1), (4_096, 3_000), (256, 32), (8, 4), (3, 3), (2, 2), (2, 1), (1, 1)]
        {
            let mut shares = Shares::new(Division::of(all, of_one));
            assert_eq!(shares.room(&1), of_one);
            assert_eq!(take_all(&mut shares, 1), of_one, "{all}");
            assert_eq!(shares.take(1, 1), Err(Full::Owner));
            assert_eq!(shares.take(1, usize::MAX), Err(Full::Owner));
            shares.give_back(&1, of_one);
            assert_eq!((shares.taken(), shares.by_owner.len()), (0, 0), "it is forgotten");
        }
        // The rest is kept for others.
        assert_eq!(take_all(&mut Shares::new(Division::of(4_096, 4_096)), 1), 3_072 + 32);
    }

    #[test]
    fn each_further_owner_gets_less_and_none_less_than_its_base() {
        for (all, of_one) in [(4_096, 2_048), (4_096, 3_000), (256, 32)] {
            let division = Division::of(all, of_one);
            let mut shares = Shares::new(division);
            let units: Vec<_> = (0..OWNERS_WITH_BASE)
                .map(|owner| {
                    let room = shares.room(&owner);
                    let units = take_all(&mut shares, owner);
                    assert_eq!(units, room, "of owner {owner}");
                    units
                })
                .collect();
            assert!(units.is_sorted_by(|before, after| before >= after), "{units:?}");
            assert!(units[1] > 4 * division.base, "{units:?}");
            assert!(units.iter().all(|units| *units >= division.base), "{units:?}");
            assert_eq!(units.iter().sum::<usize>(), shares.taken());
            assert_eq!(shares.take(OWNERS_WITH_BASE - 1, 1), Err(Full::All));
        }
    }

    #[test]
    fn what_one_gives_back_is_free_for_others() {
        let mut shares = Shares::new(Division::of(64, 32));
        let units: Vec<_> = (0..40).map(|owner| take_all(&mut shares, owner)).collect();
        assert!(units.contains(&0), "nothing is left: {units:?}");
        assert_eq!(shares.take(100, 1), Err(Full::All));
        shares.give_back(&0, units[0]);
        assert!(take_all(&mut shares, 100) > 1);
    }

    #[test]
    fn all_together_never_take_more_than_there_is() {
        let division = Division::of(1_000, 300);
        let (mut shares, mut held) = (Shares::new(division), Vec::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [owner, units, place] = [33, 41, 49].map(|by| usize::from((random >> by).to_le_bytes()[0]));
            if units % 3 == 0 && !held.is_empty() {
                let (owner, units) = held.swap_remove(place % held.len());
                shares.give_back(&owner, units);
            } else if shares.take(owner, units).is_ok() {
                held.push((owner, units));
            }
            assert_eq!(shares.taken(), held.iter().map(|(_, units)| units).sum());
            assert!(shares.taken() <= 1_000 && shares.taken_of_common() <= division.common);
        }
        for (owner, units) in held {
            shares.give_back(&owner, units);
        }
        assert_eq!((shares.taken(), shares.by_owner.len()), (0, 0));
    }

    #[test]
    fn without_units_nothing_can_be_taken() {
        assert_eq!(Shares::new(Division::of(0, 0)).take(1, 1), Err(Full::Owner));
        assert_eq!(Shares::new(Division::of(0, 5)).take(1, 1), Err(Full::All));
    }
}
