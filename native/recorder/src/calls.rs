//! The methods that stand in for torch's: what a call from a known place takes, and nothing else.
//!
//! All that is unusual goes the long way, in Python (`record/calls/wrap.py`), which is also the
//! reference: a test holds both equal. Wherever something of Python's is called or made, other
//! threads may run and code may come back here: nothing of `State` is borrowed meanwhile, and what
//! is let go is let go last.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::facts::{Facts, Shape};
use crate::latest::{Given, Latest, ASSUMED, EXCHANGE};
use crate::places::{Frames, Known, Places, NO_PEER};
use crate::python::{
    attribute, call, call_as_came, first_of, found_in, identity, interned, is_empty, is_exactly,
    is_int, is_list, is_to, list_item, list_length, method_0, none, nothing, number_of, only_one,
    pair, this_thread, weak, whole, Owned, Raised, Ref,
};
use crate::ring::{Entry, Ring};

/// Words of the heartbeat (`record/contact/heartbeat.py`).
mod word {
    pub const CALLS: usize = 12;
    pub const ENQUEUED: usize = 13;
    pub const CALL_NS: usize = 14;
    pub const WAITS: usize = 15;
    pub const WAITED: usize = 16;
    pub const WAITED_NS: usize = 17;
    pub const SITE: usize = 18;
    pub const NUMEL: usize = 23;
    pub const ROOT: usize = 31;
}

const NO_NUMEL: i64 = -1;
const MOST_LISTED: usize = 64;
const MOST_CALL: i64 = 0x7FFF_FFFF;
const NO_ROOT: i64 = 0xFFFF;

/// Of a channel's counters.
const SEQ: usize = 0;
const P2P_SEQ: usize = 1;
const EXPECTED: usize = 2;
const TRUST: usize = 3;

/// As in ring.py.
const AGREEING: i64 = 8;

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        /// Names of attributes, as Python keeps them.
        #[allow(non_snake_case)]
        pub struct Names { $($name: Owned),* }

        impl Names {
            pub unsafe fn new() -> Option<Self> {
                unsafe {
                    Some(Names { $($name: interned(concat!(stringify!($name), "\0").as_bytes())?),* })
                }
            }
        }
    };
}

names!(_get_sequence_number_for_group, dtype, numel, rootRank, shape);

/// What a method is.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Collective,
    Rooted,
    PointToPoint,
    Wait,
}

pub struct Wrapped {
    pub kind: Kind,
    /// What calls are called where they fail.
    pub op: Owned,
    pub original: Owned,
    pub long: Owned,
}

/// Objects of Python's that a call needs while a recorder is attached, and memory of theirs.
pub struct Recording {
    pub words: *mut i64,
    /// How many places the heartbeat had so far.
    pub made: *mut i64,
    /// How many entries the recorder's ring had so far, ours among them.
    pub total: *mut i64,
    pub tensor: Owned,
    /// Long-way entries by the identity of their Work.
    pub by_id: Owned,
    /// What the recorder keeps of tensors: of shape and dtype, or to be asked for it.
    pub describe: Owned,
    pub latest: Latest,
    /// Whatever keeps the memory where it is.
    pub _kept: Owned,
}

/// Objects of Python's that never change.
pub struct Fixed {
    pub names: Names,
    pub raised: Owned,
    pub wait_raised: Owned,
    pub follow: Owned,
    pub gone: Owned,
}

/// The newest call, for a wait that fails.
pub struct Last {
    work: Ref,
    method: usize,
    known: Rc<Known>,
}

pub const METHODS: usize = 32;

pub struct State {
    pub fixed: &'static Fixed,
    pub wrapped: Vec<Option<Rc<Wrapped>>>,
    pub places: Vec<Places>,
    pub recording: Option<Rc<Recording>>,
    pub ring: Ring,
    pub facts: Facts,
    /// None where the newest call has gone the long way.
    last: Option<Last>,
}

impl State {
    fn new(fixed: Fixed) -> Self {
        State {
            fixed: Box::leak(Box::new(fixed)),
            wrapped: vec![None; METHODS],
            places: (0..METHODS).map(|_| Places::default()).collect(),
            recording: None,
            ring: Ring::new(1),
            facts: Facts::default(),
            last: None,
        }
    }

    /// Start afresh; what there was is given back to be dropped.
    pub fn detached(&mut self) -> Detached {
        Detached {
            recording: self.recording.take(),
            ring: std::mem::replace(&mut self.ring, Ring::new(1)),
            _places: self.places.iter_mut().map(std::mem::take).collect(),
            _facts: std::mem::take(&mut self.facts),
            _last: self.last.take(),
        }
    }
}

/// What a state had of a recorder.
pub struct Detached {
    pub recording: Option<Rc<Recording>>,
    pub ring: Ring,
    _places: Vec<Places>,
    _facts: Facts,
    _last: Option<Last>,
}

static mut STATE: *mut State = std::ptr::null_mut();

/// The one state. Whoever has the GIL may look into it until something of Python's is called.
pub unsafe fn state() -> Option<&'static mut State> {
    unsafe { STATE.as_mut() }
}

pub unsafe fn open(fixed: Fixed) {
    unsafe { STATE = Box::into_raw(Box::new(State::new(fixed))) }
}

pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(0))
}

impl Recording {
    unsafe fn word(&self, place: usize) -> i64 {
        unsafe { self.words.add(place).read_volatile() }
    }

    unsafe fn store(&self, place: usize, value: i64) {
        unsafe { self.words.add(place).write_volatile(value) }
    }

    unsafe fn count(&self, place: usize) {
        unsafe { self.store(place, self.word(place) + 1) }
    }

    /// A call is about to be made; returns its record among the last calls.
    unsafe fn enter(&self, slot: i64, numel: i64, now: i64, given: Given) -> usize {
        unsafe {
            self.store(word::NUMEL, numel);
            self.store(word::SITE, slot);
            self.count(word::CALLS);
            self.store(word::CALL_NS, now);
            self.latest.begins(self.word(word::CALLS), now, slot, given)
        }
    }

    /// As `root_word` of heartbeat.py.
    unsafe fn note_root(&self, root: i64) {
        unsafe {
            let (number, before) = (self.word(word::CALLS), self.word(word::ROOT));
            let is_next = before >> 32 == number - 1;
            let last = if is_next { before >> 16 & NO_ROOT } else { NO_ROOT };
            self.store(word::ROOT, (number & MOST_CALL) << 32 | root.min(NO_ROOT) << 16 | last);
        }
    }
}

/// One call as it came from Python.
#[derive(Clone, Copy)]
pub struct Call {
    pub method: usize,
    pub object: Ref,
    pub args: *const Ref,
    pub count: usize,
    pub names: Ref,
}

impl Call {
    /// # Safety
    /// The GIL is held and the arguments are those of a call.
    pub unsafe fn made(self) -> Ref {
        unsafe {
            let (wrapped, recording, fixed) = match state() {
                Some(state) => match &state.wrapped[self.method] {
                    Some(wrapped) => (wrapped.clone(), state.recording.clone(), state.fixed),
                    None => return std::ptr::null_mut(),
                },
                None => return std::ptr::null_mut(),
            };
            let recording = match recording {
                Some(recording) => recording,
                None => return self.through(&wrapped.original),
            };
            let quick = Quick { call: self, wrapped: &wrapped, recording: &recording, fixed };
            let result = match wrapped.kind {
                Kind::Wait => quick.wait(),
                Kind::PointToPoint => quick.point_to_point(),
                Kind::Collective | Kind::Rooted => quick.collective(),
            };
            result.unwrap_or_else(|| quick.the_long_way())
        }
    }

    unsafe fn through(self, callable: &Owned) -> Ref {
        unsafe { call_as_came(callable.get(), self.object, self.args, self.count, self.names) }
    }

    unsafe fn argument(self, place: usize) -> Ref {
        unsafe { *self.args.add(place) }
    }
}

/// A call while a recorder is attached. Its ways say None where they have done nothing.
struct Quick<'a> {
    call: Call,
    wrapped: &'a Wrapped,
    recording: &'a Recording,
    fixed: &'static Fixed,
}

impl Quick<'_> {
    unsafe fn the_long_way(&self) -> Ref {
        unsafe {
            let result = self.call.through(&self.wrapped.long);
            if self.wrapped.kind != Kind::Wait {
                drop(state().and_then(|state| state.last.take()));
            }
            result
        }
    }

    /// The place that calls, if it is known and its group is still the one that it was.
    unsafe fn known(&self, peer: i64) -> Option<Rc<Known>> {
        unsafe {
            let (group, made) = (self.call.object, *self.recording.made);
            let depth = state()?.places[self.call.method].depth(group, peer, made);
            if depth == 0 {
                return None;
            }
            let frames = Frames::here(depth);
            let places = &mut state()?.places[self.call.method];
            let (known, weak) = places.find(group, peer, made, &frames)?;
            if is_to(weak.get(), group) {
                Some(known)
            } else {
                None
            }
        }
    }

    unsafe fn collective(&self) -> Option<Ref> {
        unsafe {
            let call = self.call;
            if call.count == 0 {
                return None;
            }
            let first = first_of(call.argument(0));
            if first.is_null() || !is_exactly(first, self.recording.tensor.get()) {
                return None;
            }
            let first = Owned::of(first);
            let known = self.known(NO_PEER)?;
            let names = &self.fixed.names;
            let numel = self.elements_of(first.get())?;
            let mut root = None;
            if self.wrapped.kind == Kind::Rooted {
                let options = call.argument(call.count - 1);
                root = number_of(options, names.rootRank.get());
            }
            let mut given = self.given(&known, numel, first.get());
            given.peer = root.unwrap_or(NO_PEER);
            let at = self.recording.enter(known.slot, numel, now_ns(), given);
            if call.count >= 4 {
                self.recording.latest.split(at, call.argument(3), call.argument(2));
            }
            if let Some(root) = root {
                self.recording.note_root(root);
            }
            let work = call.through(&self.wrapped.original);
            self.noted(at, work, known);
            Some(work)
        }
    }

    unsafe fn elements_of(&self, tensor: Ref) -> Option<i64> {
        unsafe { whole(method_0(tensor, self.fixed.names.numel.get())?.get()) }
    }

    /// Elements of a tensor, of lists of tensors and of lists of those; -1 where it has none.
    unsafe fn elements(&self, value: Ref, depth: usize) -> i64 {
        unsafe {
            if !is_list(value) {
                let is_one = is_exactly(value, self.recording.tensor.get());
                return if is_one { self.elements_of(value).unwrap_or(NO_NUMEL) } else { NO_NUMEL };
            }
            let count = list_length(value);
            if depth == 0 || count == 0 || count > MOST_LISTED {
                return NO_NUMEL;
            }
            let mut sum = 0;
            for place in 0..count {
                let item = Owned::of(list_item(value, place)); // what we call may change the list
                let found = self.elements(item.get(), depth - 1);
                if found < 0 {
                    return NO_NUMEL;
                }
                sum += found;
            }
            sum
        }
    }

    /// What a collective is given, but for its root. `first` is its first tensor, of `numel`
    /// elements; where inputs are others than outputs, they come second.
    unsafe fn given(&self, known: &Known, numel: i64, first: Ref) -> Given {
        unsafe {
            let (call, names) = (self.call, &self.fixed.names);
            let mut given = Given { group: known.group, ..Given::default() };
            if known.is_counted {
                self.number(known, &mut given);
            }
            given.p2p_seq = *known.counters.add(P2P_SEQ);
            given.outputs =
                if is_list(call.argument(0)) { self.elements(call.argument(0), 2) } else { numel };
            let second = if call.count > 1 { call.argument(1) } else { first };
            let has_inputs = is_list(second) || is_exactly(second, self.recording.tensor.get());
            given.inputs =
                if call.count > 1 && has_inputs { self.elements(second, 2) } else { given.outputs };
            if let Some(dtype) = attribute(first, names.dtype.get()) {
                given.dtype = self.recording.latest.dtype(dtype.get());
            }
            given
        }
    }

    /// The group's own number of a collective: as `_numbered` of remembering.py.
    unsafe fn number(&self, known: &Known, given: &mut Given) {
        unsafe {
            let (expected, trust) = (known.counters.add(EXPECTED), known.counters.add(TRUST));
            if *expected > 0 && *trust > 0 {
                given.seq = *expected;
                given.flags |= ASSUMED;
                *trust -= 1;
            } else {
                let name = self.fixed.names._get_sequence_number_for_group.get();
                let told = method_0(self.call.object, name).and_then(|it| whole(it.get()));
                given.seq = match told {
                    Some(told) => told + 1,
                    None => return,
                };
                let trusted = match *trust {
                    _ if given.seq != *expected => -AGREEING,
                    least if least < 0 => least + 1,
                    _ => 0,
                };
                *trust = if trusted == 0 { AGREEING - 1 } else { trusted };
            }
            *expected = given.seq + 1;
        }
    }

    unsafe fn is_last(&self, work: Ref, known: Rc<Known>) {
        unsafe {
            let last = Last { work, method: self.call.method, known };
            drop(state().and_then(|state| state.last.replace(last)));
        }
    }

    /// Say that a call has raised; the exception goes on its way.
    unsafe fn raised(&self, channel: &Owned, row: Option<Owned>) {
        unsafe {
            let held = Raised::held();
            let row = row.as_ref().map_or(none(), Owned::get);
            let told = [self.wrapped.op.get(), channel.get(), held.value(), row];
            drop(call(self.fixed.raised.get(), &told));
            held.go_on();
        }
    }

    unsafe fn point_to_point(&self) -> Option<Ref> {
        unsafe {
            let call = self.call;
            if call.count != 3 || !call.names.is_null() {
                return None;
            }
            let (tensor, peer, tag) =
                (only_one(call.argument(0)), call.argument(1), call.argument(2));
            if tensor.is_null() || !is_int(peer) || !is_int(tag) {
                return None;
            }
            let (tensor, tag) = (Owned::of(tensor), whole(tag)?);
            let peer = whole(peer)?;
            let known = self.known(peer)?;
            if known.entry.is_none() {
                return self.recorded_by_torch(known, &tensor, (peer, tag));
            }
            // From here on it is counted, and nothing can fail.
            let entry = self.entry_of(known.clone(), tag);
            let now = entry.created_ns;
            let (group, p2p_seq) = (known.group, entry.p2p_seq);
            let given = Given { group, p2p_seq, peer, tag, flags: EXCHANGE, ..Given::default() };
            let (serial, before) = state()?.ring.push(entry);
            drop(before);
            let at = self.recording.enter(known.slot, NO_NUMEL, now, given);
            let work = call.through(&self.wrapped.original);
            if work.is_null() {
                let held = Raised::held();
                self.recording.latest.fails(at, now_ns());
                self.describe(serial, at, &tensor);
                let row = taken_out(serial);
                held.go_on();
                self.raised(&known.channel, row);
                return Some(work);
            }
            self.recording.count(word::ENQUEUED);
            self.recording.latest.returned(at, work);
            self.is_last(work, known);
            self.follow(serial, work);
            self.describe(serial, at, &tensor);
            Some(work)
        }
    }

    /// A send or receive without an entry of ours: the heartbeat alone notes it.
    unsafe fn recorded_by_torch(
        &self,
        known: Rc<Known>,
        tensor: &Owned,
        (peer, tag): (i64, i64),
    ) -> Option<Ref> {
        unsafe {
            let numel = self.elements_of(tensor.get())?;
            let p2p_seq = *known.counters.add(P2P_SEQ) + 1;
            let group = known.group;
            let mut given =
                Given { group, p2p_seq, peer, tag, flags: EXCHANGE, ..Given::default() };
            (given.inputs, given.outputs) = (numel, numel);
            if let Some(dtype) = attribute(tensor.get(), self.fixed.names.dtype.get()) {
                given.dtype = self.recording.latest.dtype(dtype.get());
            }
            let at = self.recording.enter(known.slot, numel, now_ns(), given);
            let work = self.call.through(&self.wrapped.original);
            self.noted(at, work, known);
            Some(work)
        }
    }

    /// The backend has taken a call that has no entry, or it has raised.
    unsafe fn noted(&self, at: usize, work: Ref, known: Rc<Known>) {
        unsafe {
            if work.is_null() {
                self.recording.latest.fails(at, now_ns());
                self.raised(&known.channel, None);
            } else {
                self.recording.count(word::ENQUEUED);
                self.recording.latest.returned(at, work);
                self.is_last(work, known);
            }
        }
    }

    unsafe fn entry_of(&self, known: Rc<Known>, tag: i64) -> Entry {
        unsafe {
            let counters = known.counters;
            let mut entry = Entry::new(known);
            entry.tag = tag;
            entry.thread = this_thread();
            entry.number = *self.recording.total;
            *self.recording.total += 1;
            entry.seq = *counters.add(SEQ);
            *counters.add(P2P_SEQ) += 1;
            entry.p2p_seq = *counters.add(P2P_SEQ);
            if *counters.add(EXPECTED) > 0 {
                *counters.add(EXPECTED) += 1; // Gloo counts all
            }
            entry.created_ns = now_ns();
            entry
        }
    }

    /// Say what a call moves. Done when the backend has it, because torch's own code has looked at
    /// the tensor by then, and what it has touched costs less.
    unsafe fn describe(&self, serial: usize, at: usize, tensor: &Owned) {
        unsafe {
            let names = &self.fixed.names;
            let shape = attribute(tensor.get(), names.shape.get()).and_then(|it| Shape::of(&it));
            let dtype = attribute(tensor.get(), names.dtype.get());
            let key = shape.zip(dtype.as_ref().map(Owned::get));
            let numel = shape.map_or(NO_NUMEL, |shape| shape.numel());
            self.recording.store(word::NUMEL, numel);
            self.recording.latest.moves(at, numel, dtype.as_ref().map(Owned::get));
            let mut facts = key.and_then(|key| state()?.facts.of(key));
            let mut before = None;
            if facts.is_none() {
                facts = call(self.recording.describe.get(), &[tensor.get()]);
                before = key
                    .zip(facts.clone())
                    .and_then(|(key, facts)| Some(state()?.facts.keep(key, facts)));
            }
            let none = state().and_then(|state| {
                let entry = state.ring.at(serial)?;
                std::mem::replace(&mut entry.facts, facts)
            });
            drop((before, none));
        }
    }

    /// The backend has taken the call: see it end.
    unsafe fn follow(&self, serial: usize, work: Ref) {
        unsafe {
            if work != none() {
                if let Some(weak) = weak(work, self.fixed.gone.get()) {
                    if let Some(state) = state() {
                        state.ring.follow(serial, work, weak, now_ns());
                    }
                    return;
                }
            }
            if let Some(row) = taken_out(serial) {
                drop(call(self.fixed.follow.get(), &[row.get(), work]));
            }
        }
    }

    unsafe fn wait(&self) -> Option<Ref> {
        unsafe {
            let work = self.call.object;
            let ours = state()?.ring.of(work);
            let mut entry = None;
            if ours.is_none() && !is_empty(self.recording.by_id.get()) {
                entry = found_in(self.recording.by_id.get(), identity(work)?.get());
            }
            if entry.is_some() {
                return None; // it has gone the long way
            }
            self.recording.count(word::WAITS);
            let at = self.recording.latest.of(self.recording.word(word::CALLS), work);
            if let Some(at) = at {
                self.recording.latest.awaited(at);
            }
            if let Some(entry) = ours.and_then(|serial| state()?.ring.at(serial)) {
                if entry.wait_ns == 0 {
                    entry.wait_ns = now_ns();
                }
            }
            let result = self.call.through(&self.wrapped.original);
            if result.is_null() {
                if let Some(at) = at {
                    self.recording.latest.fails(at, now_ns());
                }
                self.wait_raised(ours);
                return Some(result);
            }
            self.recording.count(word::WAITED);
            let now = now_ns();
            self.recording.store(word::WAITED_NS, now);
            if let Some(at) = at {
                self.recording.latest.ends(at, now);
            }
            let weak = state().and_then(|state| match ours {
                Some(serial) if state.ring.of(work) == ours => state.ring.end(serial, now),
                _ => None,
            });
            drop(weak);
            Some(result)
        }
    }

    unsafe fn wait_raised(&self, ours: Option<usize>) {
        unsafe {
            let held = Raised::held();
            let work = self.call.object;
            let row = ours.and_then(|serial| taken_out(serial));
            let newest = state().and_then(|state| {
                let last = state.last.as_ref()?;
                let op = &state.wrapped[last.method].as_ref()?.op;
                let mine = (op.clone(), last.known.channel.clone());
                Some(if last.work == work { Some(mine) } else { None })
            });
            let told = match newest {
                Some(Some((op, channel))) => pair(op, channel),
                Some(None) => nothing(),
                None => Some(Owned::of(none())),
            };
            if let Some(told) = told {
                let row = row.as_ref().map_or(none(), Owned::get);
                let args = [work, held.value(), told.get(), row];
                drop(call(self.fixed.wait_raised.get(), &args));
            }
            held.go_on();
        }
    }
}

/// Take an entry out of the ring, as a row for Python.
unsafe fn taken_out(serial: usize) -> Option<Owned> {
    unsafe {
        let entry = state()?.ring.take(serial)?;
        entry.row()
    }
}

/// Somebody has seen that the call of a Work is over.
pub unsafe fn ended(work: Ref) {
    unsafe {
        let before = state().and_then(|state| {
            let serial = state.ring.of(work)?;
            state.ring.end(serial, now_ns())
        });
        drop(before);
    }
}
