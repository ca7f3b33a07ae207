//! Places from which calls are made again and again, told by their frames.

use crate::python::{
    item, length_of, whole, Owned, PyEval_GetFrame, PyFrame_GetBack, PyFrame_GetCode,
    PyFrame_GetLasti, Ref,
};
use std::mem::MaybeUninit;
use std::rc::Rc;

const MOST_PLACES: usize = 32;
const MOST_FRAMES: usize = 100;

/// Peer of a call that has none.
pub const NO_PEER: i64 = -1;

/// Code object and instruction of a frame. The address is only compared, and while the frame runs.
type Step = (Ref, i32);

/// The innermost frames of this thread.
pub struct Frames {
    /// The first `count` are set; to clear the others would touch memory for nothing.
    steps: [MaybeUninit<Step>; MOST_FRAMES],
    count: usize,
    is_whole: bool,
}

impl Frames {
    /// Look at so many frames. Python may run anything meanwhile: no place is borrowed.
    pub unsafe fn here(most: usize) -> Self {
        let steps = [MaybeUninit::uninit(); MOST_FRAMES];
        let mut found = Frames { steps, count: 0, is_whole: false };
        unsafe {
            let first = PyEval_GetFrame();
            let mut frame = if first.is_null() { None } else { Some(Owned::of(first)) };
            while found.count < most.min(MOST_FRAMES) {
                let next = match frame {
                    Some(frame) => {
                        let code = PyFrame_GetCode(frame.get());
                        drop(Owned::taken(code)); // its frame keeps it
                        found.steps[found.count].write((code, PyFrame_GetLasti(frame.get())));
                        found.count += 1;
                        let back = PyFrame_GetBack(frame.get());
                        if back.is_null() {
                            None
                        } else {
                            Owned::taken(back)
                        }
                    }
                    None => break,
                };
                frame = next;
            }
            found.is_whole = frame.is_none();
        }
        found
    }

    fn step(&self, place: usize) -> Step {
        debug_assert!(place < self.count);
        unsafe { self.steps[place].assume_init() }
    }
}

/// What is known of the calls of one place.
pub struct Known {
    /// The place's number in the heartbeat.
    pub slot: i64,
    pub channel: Owned,
    /// Its counters: collectives, sends and receives. The channel keeps them where they are.
    pub counters: *mut i64,
    /// Number of its row among the groups of the last calls.
    pub group: i64,
    /// Whether the group is to be asked how many calls it has counted.
    pub is_counted: bool,
    /// What entries are called, and the stack they have; None where there are none.
    pub entry: Option<(Owned, Owned)>,
}

pub struct Place {
    /// Only its address, which may become another's: `weak` tells.
    group: Ref,
    weak: Owned,
    peer: i64,
    /// Of the heartbeat when the place was kept: it may have given the number away since.
    made: i64,
    steps: Vec<(Owned, i32)>,
    /// Whether the frames are all there are, down to the outermost.
    is_whole: bool,
    known: Rc<Known>,
}

impl Place {
    fn is_of(&self, group: Ref, peer: i64, made: i64) -> bool {
        self.group == group && self.peer == peer && self.made == made
    }

    fn fits(&self, frames: &Frames) -> bool {
        let length = self.steps.len();
        if length > frames.count || (self.is_whole && !(frames.is_whole && length == frames.count))
        {
            return false;
        }
        // From the outer end: the innermost frames are torch's own, and always the same.
        (0..length).rev().all(|place| {
            let ((code, offset), own) = (frames.step(place), &self.steps[place]);
            code == own.0.get() && offset == own.1
        })
    }
}

/// The places of one method's calls.
#[derive(Default)]
pub struct Places {
    places: Vec<Place>,
    recent: usize,
    oldest: usize,
}

impl Places {
    /// How many frames tell the places of this group apart; 0 where there are none.
    pub fn depth(&self, group: Ref, peer: i64, made: i64) -> usize {
        let own = self.places.iter().filter(|place| place.is_of(group, peer, made));
        own.map(|place| place.steps.len()).max().unwrap_or(0)
    }

    /// The place that has these frames, and a weak reference to its group.
    pub fn find(
        &mut self,
        group: Ref,
        peer: i64,
        made: i64,
        frames: &Frames,
    ) -> Option<(Rc<Known>, Owned)> {
        let count = self.places.len();
        for step in 0..count {
            let number = (self.recent + step) % count;
            let place = &self.places[number];
            if place.is_of(group, peer, made) && place.fits(frames) {
                self.recent = number;
                return Some((place.known.clone(), place.weak.clone()));
            }
        }
        None
    }

    /// Keep a place; the one that was kept for the same frames, or the oldest, makes room, and is
    /// given back to be dropped.
    ///
    /// `stack` is a tuple of code objects and offsets by turns; with an entry's name it is whole.
    pub unsafe fn keep(
        &mut self,
        (group, weak): (Ref, Owned),
        peer: i64,
        made: i64,
        stack: Ref,
        known: Known,
    ) -> Option<Place> {
        let is_whole = known.entry.is_some();
        let known = Rc::new(known);
        let mut steps = Vec::new();
        let length = unsafe { length_of(stack) } / 2;
        if length == 0 || length >= MOST_FRAMES {
            return None;
        }
        for step in 0..length {
            unsafe {
                let code = item(stack, 2 * step);
                let offset = whole(item(stack, 2 * step + 1));
                match (code.is_null(), offset.and_then(|value| i32::try_from(value).ok())) {
                    (false, Some(offset)) => steps.push((Owned::of(code), offset)),
                    _ => return None,
                }
            }
        }
        let place = Place { group, weak, peer, made, steps, is_whole, known };
        let same = self.places.iter().position(|other| {
            other.group == group
                && other.peer == peer
                && other.steps.len() == place.steps.len()
                && other
                    .steps
                    .iter()
                    .zip(&place.steps)
                    .all(|(a, b)| a.0.get() == b.0.get() && a.1 == b.1)
        });
        let number = match same {
            Some(number) => number,
            None if self.places.len() < MOST_PLACES => self.places.len(),
            None => self.oldest,
        };
        self.recent = number;
        if number == self.places.len() {
            self.places.push(place);
            return None;
        }
        if same.is_none() {
            self.oldest = (self.oldest + 1) % MOST_PLACES;
        }
        Some(std::mem::replace(&mut self.places[number], place))
    }
}
