//! Which states are alive at which counts.

use super::apart::Apart;
use crate::error::Result;
use crate::fsm::UNBOUNDED;
use crate::limits::Budget;

/// Most (count, edge) pairs that are looked at to find which states are alive before the least length.
const MOST_WORK: usize = 1 << 24;
/// Counts `first` to `last` (inclusive; [`UNBOUNDED`] if it never ends), with the states that are alive at each.
pub(super) struct Zone {
    pub(super) first: u32,
    pub(super) last: u32,
    alive: Alive,
}

pub(super) enum Alive {
    /// Those that can be completed with at most so many characters.
    Within(u32),
    /// Those for which it says so.
    Listed(Vec<bool>),
}

impl Zone {
    /// Characters that can be written without leaving the zone, by one that enters it at its first count.
    pub(super) fn room(&self) -> u32 {
        if self.last == UNBOUNDED {
            0
        } else {
            self.last - self.first
        }
    }
}

/// All zones, in order of their counts.
pub(super) struct Zones {
    pub(super) list: Vec<Zone>,
    /// Least number of characters that completes each state; [`UNBOUNDED`] if none does.
    least: Vec<u32>,
}

impl Zones {
    pub(super) fn alive(&self, q: u32, zone: usize) -> bool {
        self.list.get(zone).is_some_and(|zone| match &zone.alive {
            Alive::Within(room) => self.least[q as usize] <= *room,
            Alive::Listed(alive) => alive[q as usize],
        })
    }

    /// What is alive of states that are not told apart by other counters; `None` if some are alive with some values of
    /// the counters only. `apart`: by state told apart, the state that it comes from.
    pub(super) fn together(&self, apart: &[(u32, u32)], states: usize) -> Option<Zones> {
        // Those that nothing leads to are alive nowhere.
        let mut range = vec![(UNBOUNDED, 0); states];
        for (&(q, _), &t) in apart.iter().zip(&self.least) {
            let (least, most) = &mut range[q as usize];
            (*least, *most) = ((*least).min(t), (*most).max(t));
        }
        let room = |zone: &Zone| if let Alive::Within(room) = zone.alive { Some(room) } else { None };
        let mut rooms: Vec<u32> = self.list.iter().filter_map(room).collect();
        rooms.sort_unstable();
        let differs = |&(least, most): &(u32, u32)| {
            let first = rooms.partition_point(|&room| room < least);
            rooms.get(first).is_some_and(|&room| room < most)
        };
        if range.iter().any(differs) {
            return None;
        }
        let mut list = Vec::with_capacity(self.list.len());
        for zone in &self.list {
            let alive = match &zone.alive {
                &Alive::Within(room) => Alive::Within(room),
                Alive::Listed(all) => {
                    let mut alive: Vec<Option<bool>> = vec![None; states];
                    for (&(q, _), &is) in apart.iter().zip(all) {
                        if *alive[q as usize].get_or_insert(is) != is {
                            return None;
                        }
                    }
                    Alive::Listed(alive.into_iter().map(|alive| alive.unwrap_or(false)).collect())
                }
            };
            list.push(Zone { alive, ..*zone });
        }
        Some(Zones { list, least: range.into_iter().map(|(least, _)| least).collect() })
    }
}

impl Apart {
    /// Adds the states that reach a member without beginning a character.
    fn close(&self, set: &mut [bool]) {
        let mut work: Vec<u32> = (0u32..).zip(set.iter()).filter(|(_, &is)| is).map(|(q, _)| q).collect();
        while let Some(q) = work.pop() {
            for &(p, begins) in self.back.of(q) {
                if !begins && !std::mem::replace(&mut set[p as usize], true) {
                    work.push(p);
                }
            }
        }
    }

    /// The states from which one more character leads into the set.
    fn before(&self, set: &[bool]) -> Vec<bool> {
        let mut found = vec![false; set.len()];
        for (q, _) in (0u32..).zip(set).filter(|(_, &is)| is) {
            for &(p, _) in self.back.of(q).iter().filter(|(_, begins)| *begins) {
                found[p as usize] = true;
            }
        }
        self.close(&mut found);
        found
    }

    /// Least number of characters that completes each state; [`UNBOUNDED`] if none does.
    fn least(&self, budget: &Budget) -> Result<Vec<u32>> {
        let mut least = vec![UNBOUNDED; self.list.len()];
        let mut set: Vec<u32> = (0u32..).zip(&self.accepts).filter(|(_, &accepts)| accepts).map(|(q, _)| q).collect();
        for t in 0.. {
            budget.tick()?;
            set.retain(|&q| {
                let least = &mut least[q as usize];
                let new = *least == UNBOUNDED;
                *least = t.min(*least);
                new
            });
            if set.is_empty() {
                break;
            }
            let mut before = vec![];
            let mut next = 0;
            while let Some(&q) = set.get(next) {
                next += 1;
                for &(p, begins) in self.back.of(q) {
                    if least[p as usize] != UNBOUNDED {
                        continue;
                    }
                    if begins {
                        before.push(p);
                    } else {
                        least[p as usize] = t;
                        set.push(p);
                    }
                }
            }
            set = before;
        }
        Ok(least)
    }

    /// Greatest number of characters; [`UNBOUNDED`] if there is no greatest. `least`: which states can be completed at all.
    fn greatest(&self, least: &[u32], budget: &Budget) -> Result<Vec<u32>> {
        let mut greatest = vec![0; least.len()];
        // Those that can be completed with `t` characters or more.
        let mut set: Vec<bool> = least.iter().map(|&t| t != UNBOUNDED).collect();
        for t in 1.. {
            budget.tick()?;
            let next = self.before(&set);
            if next == set {
                break;
            }
            for (greatest, _) in greatest.iter_mut().zip(&next).filter(|(_, &is)| is) {
                *greatest = t;
            }
            set = next;
        }
        for (greatest, _) in greatest.iter_mut().zip(&set).filter(|(_, &is)| is) {
            *greatest = UNBOUNDED;
        }
        Ok(greatest)
    }

    /// The zones for a length from `min` to `max`. `None`: too much work.
    pub(super) fn zones(&self, min: u32, max: u32, budget: &Budget) -> Result<Option<Zones>> {
        let states = self.list.len() as u32;
        let mut list = vec![];
        let least = self.least(budget)?;
        if (min as usize).saturating_mul(self.edges) <= MOST_WORK {
            let Some(before) = self.before_minimum(&least, min, max, budget)? else { return Ok(None) };
            list.extend(before);
        } else if max == UNBOUNDED || max - min >= states {
            let greatest = self.greatest(&least, budget)?;
            let cuts = greatest.iter().map(|&t| min.saturating_sub(t)).chain([0]);
            for (first, last) in ranges(cuts, min) {
                let alive = greatest.iter().zip(&least).map(|(&g, &l)| l != UNBOUNDED && g >= min - first);
                list.push(Zone { first, last, alive: Alive::Listed(alive.collect()) });
            }
        } else {
            return Ok(None);
        }
        let room = |first: u32| if max == UNBOUNDED { UNBOUNDED - 1 } else { max - first };
        let cuts = least.iter().map(|&t| max.saturating_sub(t).saturating_add(1)).filter(|&k| k > min);
        let end = max.saturating_add(1);
        let cuts: Vec<u32> = if max == UNBOUNDED { vec![] } else { cuts.collect() };
        for (first, last) in ranges(cuts.into_iter().chain([min]), end) {
            let last = if max == UNBOUNDED { UNBOUNDED } else { last };
            list.push(Zone { first, last, alive: Alive::Within(room(first)) });
        }
        Ok(Some(Zones { list, least }))
    }

    /// The zones before `min` characters. `None`: a character may go on for ever.
    fn before_minimum(&self, least: &[u32], min: u32, max: u32, budget: &Budget) -> Result<Option<Vec<Zone>>> {
        let Some(order) = self.within_characters() else { return Ok(None) };
        // By state: the least number of characters that completes it and is at least `wanted`.
        let mut numbers = least.to_vec();
        // First and last count, and what is alive.
        let mut zones: Vec<(u32, u32, Vec<bool>)> = vec![];
        for wanted in 1..=min {
            budget.tick()?;
            let mut next = vec![UNBOUNDED; numbers.len()];
            for &q in &order {
                let ways = self.steps.of(q).iter().map(|&(target, begins)| match begins {
                    true => numbers[target as usize].saturating_add(1),
                    false => next[target as usize],
                });
                next[q as usize] = ways.min().unwrap_or(UNBOUNDED);
            }
            numbers = next;
            let k = min - wanted;
            let room = if max == UNBOUNDED { UNBOUNDED - 1 } else { max - k };
            let alive: Vec<bool> = numbers.iter().map(|&t| t <= room).collect();
            match zones.last_mut() {
                Some((first, _, same)) if *same == alive => *first = k,
                _ => zones.push((k, k, alive)),
            }
        }
        let zone = |(first, last, alive)| Zone { first, last, alive: Alive::Listed(alive) };
        Ok(Some(zones.into_iter().rev().map(zone).collect()))
    }

    /// The states, each after those to which its edges within a character lead; `None` if these go in a circle.
    fn within_characters(&self) -> Option<Vec<u32>> {
        let states = 0..self.list.len() as u32;
        let within = |q: u32| self.steps.of(q).iter().filter(|(_, begins)| !begins).count();
        let mut left: Vec<usize> = states.clone().map(within).collect();
        let mut order: Vec<u32> = states.zip(&left).filter(|(_, &n)| n == 0).map(|(q, _)| q).collect();
        let mut done = 0;
        while let Some(&q) = order.get(done) {
            done += 1;
            for &(p, _) in self.back.of(q).iter().filter(|(_, begins)| !begins) {
                left[p as usize] -= 1;
                if left[p as usize] == 0 {
                    order.push(p);
                }
            }
        }
        (order.len() == left.len()).then_some(order)
    }
}

/// The ranges of counts below `end` that begin at the given ones.
fn ranges(begins: impl Iterator<Item = u32>, end: u32) -> Vec<(u32, u32)> {
    let mut begins: Vec<u32> = begins.filter(|&k| k < end).collect();
    begins.sort_unstable();
    begins.dedup();
    let ends: Vec<u32> = begins.iter().skip(1).copied().chain([end]).map(|k| k.saturating_sub(1)).collect();
    begins.into_iter().zip(ends).collect()
}
