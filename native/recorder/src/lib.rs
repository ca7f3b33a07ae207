//! The recorder's quick way of a call, beside every call of the job.
//!
//! `src/unhang/record/calls/quick.py` loads it through ctypes and hands in what it needs. It lives
//! in the ranks of other people's jobs: no panic is reachable, no lock is taken, nothing is
//! written but the heartbeat's words and the recorder's own objects, and what is not known to be
//! usual is left to Python.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::missing_safety_doc)]

mod calls;
mod facts;
mod latest;
mod places;
mod python;
mod ring;

use std::os::raw::c_char;
use std::ptr::null_mut;
use std::rc::Rc;

use calls::{state, Call, Fixed, Kind, Names, Recording, Wrapped, METHODS};
use latest::Latest;
use places::Known;
use python::{
    item, length_of, listed, none, Method, MethodDef, Owned, PyDescr_NewMethod, Ref,
    METH_FASTCALL_KEYWORDS,
};
use ring::Ring;

/// Of the sources that this was built from; the build script sets it.
const FINGERPRINT: &str = match option_env!("UNHANG_FINGERPRINT") {
    Some(text) => text,
    None => "",
};

/// Copy the fingerprint into a buffer; returns its length.
///
/// # Safety
/// `buffer` has room for `room` bytes.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_fingerprint(buffer: *mut c_char, room: usize) -> usize {
    let length = FINGERPRINT.len().min(room);
    unsafe { std::ptr::copy_nonoverlapping(FINGERPRINT.as_ptr(), buffer.cast(), length) };
    length
}

unsafe extern "C" fn entered<const METHOD: usize>(
    object: Ref,
    args: *const Ref,
    count: isize,
    names: Ref,
) -> Ref {
    let count = usize::try_from(count).unwrap_or(0);
    unsafe { Call { method: METHOD, object, args, count, names }.made() }
}

macro_rules! numbered {
    ($($number:literal)*) => { [$(entered::<$number>),*] };
}

/// A function for each method: what torch's classes hold has no room for anything else.
const ENTRIES: [Method; METHODS] = numbered!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);

/// Take the objects that never change, in the order of `Fixed`; 0 where that has failed.
///
/// # Safety
/// The GIL is held; `objects` is a tuple of four.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_open(objects: Ref) -> i32 {
    unsafe {
        let take = |place| Owned::of(item(objects, place));
        let names = match Names::new() {
            Some(names) => names,
            None => return 0,
        };
        calls::open(Fixed {
            names,
            raised: take(0),
            wait_raised: take(1),
            follow: take(2),
            gone: take(3),
        });
        1
    }
}

/// A method for a class; null where it cannot be made, and an error of Python's may be set.
///
/// # Safety
/// The GIL is held; `name` and `doc` stay where they are for ever, `doc` may be null;
/// `callables` is a tuple of what calls are called, the original and the long way.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_wrap(
    owner: Ref,
    number: usize,
    kind: i32,
    name: *const c_char,
    doc: *const c_char,
    callables: Ref,
) -> Ref {
    unsafe {
        let (state, method) = match (state(), ENTRIES.get(number)) {
            (Some(state), Some(method)) => (state, *method),
            _ => return null_mut(),
        };
        let kind = match kind {
            0 => Kind::Collective,
            1 => Kind::Rooted,
            2 => Kind::PointToPoint,
            _ => Kind::Wait,
        };
        let take = |place| Owned::of(item(callables, place));
        let wrapped = Wrapped { kind, op: take(0), original: take(1), long: take(2) };
        let before = state.wrapped[number].replace(Rc::new(wrapped));
        drop(before);
        let flags = METH_FASTCALL_KEYWORDS;
        let definition = Box::new(MethodDef { name, method, flags, doc });
        PyDescr_NewMethod(owner, Box::into_raw(definition))
    }
}

/// Report to a recorder from now on; entries of the same one are kept.
///
/// # Safety
/// The GIL is held; `objects` is a tuple of the class of tensors, the recorder's table of Works, what
/// describes a tensor, whatever keeps the memory of the three pointers where it is, and torch's dtypes.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_attach(
    words: *mut i64,
    made: *mut i64,
    total: *mut i64,
    size: usize,
    objects: Ref,
) {
    unsafe {
        let take = |place| Owned::of(item(objects, place));
        let recording = Recording {
            words,
            made,
            total,
            tensor: take(0),
            by_id: take(1),
            describe: take(2),
            latest: Latest::new(words, item(objects, 4)),
            _kept: take(3),
        };
        if let Some(state) = state() {
            let mut before = state.detached();
            let recorder = before.recording.as_ref();
            if recorder.map_or(false, |recorder| recorder.total == total) {
                state.ring = std::mem::replace(&mut before.ring, Ring::new(1));
            } else {
                state.ring = Ring::new(size);
            }
            state.recording = Some(Rc::new(recording));
            drop(before);
        }
    }
}

/// Let calls through (after fork).
///
/// # Safety
/// The GIL is held.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_detach() {
    let before = unsafe { state() }.map(|state| state.detached());
    drop(before);
}

/// Keep a place for the calls to come.
///
/// # Safety
/// The GIL is held; `objects` is a tuple of the group, a weak reference to it, its channel, the
/// stack (code objects and offsets by turns) and, for sends and receives, the name of entries.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_keep(
    number: usize,
    peer: i64,
    made: i64,
    slot: i64,
    counters: *mut i64,
    group: i64,
    is_counted: i32,
    objects: Ref,
) {
    unsafe {
        let take = |place| Owned::of(item(objects, place));
        let is_counted = is_counted != 0;
        let stack = item(objects, 3);
        let entry = if length_of(objects) > 4 { Some((take(4), take(3))) } else { None };
        let known = Known { slot, channel: take(2), counters, group, is_counted, entry };
        let group = (item(objects, 0), take(1));
        let found = state().and_then(|state| state.places.get_mut(number));
        let before = found.map(|places| places.keep(group, peer, made, stack, known));
        drop(before);
    }
}

/// All entries that went this way, a list of rows; None where there is no room.
///
/// # Safety
/// The GIL is held.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_entries() -> Ref {
    unsafe {
        let entries = state().map_or(Vec::new(), |state| state.ring.copied());
        let rows: Option<Vec<Owned>> = entries.iter().map(|entry| entry.row()).collect();
        rows.and_then(|rows| listed(rows)).map_or(none_owned(), Owned::given)
    }
}

/// Weak references to the Works that are followed, a list.
///
/// # Safety
/// The GIL is held.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_followed() -> Ref {
    unsafe {
        let works = state().map_or(Vec::new(), |state| state.ring.opened());
        listed(works).map_or(none_owned(), Owned::given)
    }
}

/// The call of a Work was seen to have ended.
///
/// # Safety
/// The GIL is held.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_ended(work: Ref) {
    unsafe { calls::ended(work) }
}

/// What a weak reference was to has gone: nobody can wait for it any more.
///
/// # Safety
/// The GIL is held.
#[no_mangle]
pub unsafe extern "C" fn unhang_recorder_gone(weak: Ref) {
    let before = unsafe { state() }.and_then(|state| state.ring.abandon(weak));
    drop(before);
}

unsafe fn none_owned() -> Ref {
    unsafe { Owned::of(none()).given() }
}
