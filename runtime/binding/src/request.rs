//! `RequestState`: what a serving engine calls for one request at every token, and nothing of what happens once.
//!
//! An engine's forward pass leaves the processor's caches full of weights, so these calls find neither code nor data there,
//! and take as long as the lines that they touch. They are therefore methods of one class here, whose state lies side by
//! side: no Python runs in them unless something is wrong, nothing is looked up by name, and nothing is allocated. What is
//! slow and rare is Python's: the subclass (`gramary.runtime.serving.RequestGrammar`) has the hooks
//!
//! | hook | called when | must |
//! |---|---|---|
//! | `_arrive(wait)` | there is no matcher yet | `_start` with one, or `_fail`; waiting only if `wait` |
//! | `_fail(kind, reason)` | the request cannot go on | note the reason, and `_end` |
//! | `_refused(request_id)` | tokens were refused | log it |
//! | `_open(bitmask, row)` | there is no mask | allow everything in the row |
//!
//! Nothing raises out of these calls but what hooks raise.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use gramary_runtime::{Durations, Matcher};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PySlice, PyString};
use smallvec::SmallVec;

use crate::bitmask::Rows;
use crate::durations::PyDurations;
use crate::errors::matcher_error;
use crate::grammar::PyMatcher;

/// Tokens of one call; more than an engine gives at once without speculation, and usually with it.
type Tokens = SmallVec<[u32; 16]>;

/// An id that no vocabulary has: what negative and oversized ones are to the kernel.
const NO_TOKEN: u32 = u32::MAX;

/// Whether a request has a matcher.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// Not yet.
    Compiling,
    Ready,
    /// It failed: rows are open and every token is refused.
    Over,
}

/// The bitmask that was written last: to ask an array where its rows are costs more than to fill one.
struct Target {
    /// Held, so that no other array can be taken for it.
    owner: Py<PyAny>,
    rows: Rows,
}

/// See the module.
#[pyclass(name = "RequestState", module = "gramary.runtime._core", subclass, frozen)]
pub struct PyRequestState {
    stage: AtomicU8,
    terminated: AtomicBool,
    target: Mutex<Option<Target>>,
    matcher: OnceLock<Arc<Matcher>>,
    fill: Arc<Durations>,
    accept: Arc<Durations>,
    validate: Arc<Durations>,
    rollback: Arc<Durations>,
}

#[pymethods]
impl PyRequestState {
    /// The histograms are those of the calls' durations.
    #[new]
    fn new(fill: &PyDurations, accept: &PyDurations, validate: &PyDurations, rollback: &PyDurations) -> Self {
        PyRequestState {
            stage: AtomicU8::new(Stage::Compiling as u8),
            terminated: AtomicBool::new(false),
            target: Mutex::new(None),
            matcher: OnceLock::new(),
            fill: fill.durations.clone(),
            accept: accept.durations.clone(),
            validate: validate.durations.clone(),
            rollback: rollback.durations.clone(),
        }
    }

    fn fill_bitmask(slf: &Bound<'_, Self>, bitmask: &Bound<'_, PyAny>, row: isize) -> PyResult<()> {
        let start = Instant::now();
        let this = slf.get();
        let outcome = match this.matcher_for(slf, true)? {
            Some(matcher) => this.write(slf.py(), matcher, bitmask, row),
            None => Ok(false),
        };
        if !matches!(outcome, Ok(true)) {
            without_mask(slf, outcome.err(), bitmask, row)?;
        }
        this.fill.since(start);
        Ok(())
    }

    fn accept_tokens(
        slf: &Bound<'_, Self>,
        request_id: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let start = Instant::now();
        let this = slf.get();
        let outcome = match this.terminated.load(Ordering::Relaxed) {
            true => Ok(true),
            false => match this.matcher_for(slf, false)? {
                Some(matcher) => this.take(slf.py(), matcher, tokens),
                None => Ok(false),
            },
        };
        let accepted = matches!(outcome, Ok(true));
        if !accepted {
            refused(slf, outcome.err(), request_id)?;
        }
        this.accept.since(start);
        Ok(accepted)
    }

    fn validate_tokens<'py>(slf: &Bound<'py, Self>, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let start = Instant::now();
        let this = slf.get();
        let mut taken = 0;
        if !this.terminated.load(Ordering::Relaxed) {
            if let Some(matcher) = this.matcher_for(slf, false)? {
                match judge(slf.py(), matcher, tokens) {
                    Ok(number) => taken = number,
                    Err(e) => fail(slf, Failure::new("limit", format!("drafts could not be judged: {e}")))?,
                }
            }
        }
        let valid = tokens.get_item(PySlice::new(slf.py(), 0, taken as isize, 1))?;
        this.validate.since(start);
        Ok(valid)
    }

    fn rollback(slf: &Bound<'_, Self>, count: isize) -> PyResult<()> {
        let start = Instant::now();
        let this = slf.get();
        if let (Some(matcher), Ok(count @ 1..)) = (this.matcher(), usize::try_from(count)) {
            match slf.py().detach(|| matcher.rollback(count)) {
                Ok(()) => this.terminated.store(matcher.is_terminated(), Ordering::Relaxed),
                Err(e) => fail(slf, Failure::new("internal", format!("{count} tokens could not be taken back: {e}")))?,
            }
        }
        this.rollback.since(start);
        Ok(())
    }

    fn is_terminated(&self) -> bool {
        self.terminated.load(Ordering::Relaxed)
    }

    fn reset(&self, py: Python<'_>) {
        if let Some(matcher) = self.matcher() {
            py.detach(|| matcher.reset());
        }
        self.terminated.store(false, Ordering::Relaxed);
    }

    /// The kernel's matcher, if there is one and the request has not failed.
    #[getter(matcher)]
    fn shared_matcher(&self) -> Option<PyMatcher> {
        self.matcher().map(|matcher| PyMatcher { matcher: matcher.clone() })
    }

    /// The matcher is there. The first one stays.
    fn _start(&self, matcher: &PyMatcher) {
        let _ = self.matcher.set(matcher.matcher.clone());
        let (compiling, ready) = (Stage::Compiling as u8, Stage::Ready as u8);
        let _ = self.stage.compare_exchange(compiling, ready, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The request has failed, for good.
    fn _end(&self) {
        self.stage.store(Stage::Over as u8, Ordering::Relaxed);
    }
}

impl PyRequestState {
    #[inline]
    fn matcher(&self) -> Option<&Arc<Matcher>> {
        match self.stage.load(Ordering::Relaxed) == Stage::Ready as u8 {
            true => self.matcher.get(),
            false => None,
        }
    }

    /// The matcher, also one that arrives now.
    #[inline]
    fn matcher_for(&self, slf: &Bound<'_, Self>, wait: bool) -> PyResult<Option<&Arc<Matcher>>> {
        if self.stage.load(Ordering::Relaxed) == Stage::Compiling as u8 {
            slf.call_method1(intern!(slf.py(), "_arrive"), (wait,))?;
        }
        Ok(self.matcher())
    }

    /// Write a mask; true, since what has none is an error.
    #[inline]
    fn write(
        &self,
        py: Python<'_>,
        matcher: &Matcher,
        bitmask: &Bound<'_, PyAny>,
        row: isize,
    ) -> Result<bool, Failure> {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if target.as_ref().is_none_or(|t| t.owner.as_ptr() != bitmask.as_ptr()) {
            *target = Some(Target::of(bitmask, matcher)?);
        }
        let Some(Target { rows, .. }) = &*target else { unreachable!("just made") };
        // SAFETY: `bitmask` is borrowed for the whole call, which keeps the array alive, and it is where it was when `rows`
        // was made: numpy moves no array that somebody else refers to, as `owner` does, and engines do not resize the
        // tensor that they allocated for their masks. For the row itself see `Rows::row`.
        let words = unsafe { rows.row(row as usize) }.map_err(Failure::mask)?;
        // Releasing the GIL for a microsecond may cost the switch interval of another thread, 5 ms.
        match matcher.fill_at_once(words) {
            Some(true) => Ok(true),
            Some(false) => Err(Failure::empty_mask()),
            None => {
                drop(target);
                match py.detach(|| matcher.fill(words)) {
                    Ok(true) => Ok(true),
                    Ok(false) => Err(Failure::empty_mask()),
                    Err(e) => Err(Failure::mask(e)),
                }
            }
        }
    }

    /// Advance by tokens; true, since refusals are errors. What comes after a stop token is ignored.
    #[inline]
    fn take(&self, py: Python<'_>, matcher: &Matcher, tokens: &Bound<'_, PyAny>) -> Result<bool, Failure> {
        let ids = ids(tokens).map_err(|e| Failure::new("internal", format!("the engine gave no tokens: {e}")))?;
        let taken = match matcher.accept_at_once(&ids) {
            Some(taken) => taken,
            None => {
                let taken = py.detach(|| matcher.accept_all(&ids));
                taken.map_err(|e| Failure::new("limit", format!("token {} could not be matched: {e}", ids[0])))?
            }
        };
        if taken.terminated {
            self.terminated.store(true, Ordering::Relaxed);
        } else if taken.tokens < ids.len() {
            return Err(Failure::token(matcher, tokens, taken.tokens));
        }
        Ok(true)
    }
}

impl Target {
    #[cold]
    fn of(bitmask: &Bound<'_, PyAny>, matcher: &Matcher) -> Result<Target, Failure> {
        let rows = Rows::of(bitmask, matcher.grammar().row_words).map_err(Failure::mask)?;
        Ok(Target { owner: bitmask.clone().unbind(), rows })
    }
}

/// Why a request cannot go on. What makes and handles it is out of line: it is not to be in the way of what happens at
/// every token.
struct Failure {
    /// As it is counted.
    kind: &'static str,
    reason: String,
}

impl Failure {
    fn new(kind: &'static str, reason: String) -> Failure {
        Failure { kind, reason }
    }

    #[cold]
    fn mask(error: impl Display) -> Failure {
        Failure::new("limit", format!("the mask could not be computed: {error}"))
    }

    #[cold]
    fn empty_mask() -> Failure {
        Failure::new("token", "no token of this vocabulary can continue the text".into())
    }

    /// Token `at` of these is not allowed.
    #[cold]
    fn token(matcher: &Matcher, tokens: &Bound<'_, PyAny>, at: usize) -> Failure {
        let token = tokens.get_item(at).map_or_else(|e| e.to_string(), |token| token.to_string());
        let end = " (the text is complete: only a stop token may follow)";
        let at_end = if matcher.is_complete() { end } else { "" };
        Failure::new("token", format!("token {token} is not allowed here{at_end}; did min_tokens forbid the end?"))
    }
}

#[cold]
fn fail(slf: &Bound<'_, PyRequestState>, failure: Failure) -> PyResult<()> {
    slf.call_method1(intern!(slf.py(), "_fail"), (failure.kind, failure.reason)).map(drop)
}

#[cold]
fn without_mask(
    slf: &Bound<'_, PyRequestState>,
    failure: Option<Failure>,
    bitmask: &Bound<'_, PyAny>,
    row: isize,
) -> PyResult<()> {
    failure.map_or(Ok(()), |failure| fail(slf, failure))?;
    slf.call_method1(intern!(slf.py(), "_open"), (bitmask, row)).map(drop)
}

#[cold]
fn refused(slf: &Bound<'_, PyRequestState>, failure: Option<Failure>, request_id: &Bound<'_, PyAny>) -> PyResult<()> {
    failure.map_or(Ok(()), |failure| fail(slf, failure))?;
    slf.call_method1(intern!(slf.py(), "_refused"), (request_id,)).map(drop)
}

/// How many of the tokens would be accepted, up to and including a stop token.
fn judge(py: Python<'_>, matcher: &Matcher, tokens: &Bound<'_, PyAny>) -> PyResult<usize> {
    let ids = ids(tokens)?;
    py.detach(|| matcher.validate_to_end(&ids)).map_err(|e| matcher_error(py, e))
}

/// Ids as the kernel has them.
#[inline]
fn ids(tokens: &Bound<'_, PyAny>) -> PyResult<Tokens> {
    let mut ids = Tokens::new();
    let Ok(list) = tokens.cast::<PyList>() else {
        for token in tokens.try_iter()? {
            ids.push(id(&token?)?);
        }
        return Ok(ids);
    };
    for i in 0..list.len() {
        ids.push(id(&list.get_item(i)?)?);
    }
    Ok(ids)
}

#[inline]
fn id(token: &Bound<'_, PyAny>) -> PyResult<u32> {
    token.extract::<u32>().or_else(|e| no_id(token, e))
}

/// An integer that no vocabulary can have, negative or huge, is just not allowed.
#[cold]
fn no_id(token: &Bound<'_, PyAny>, error: PyErr) -> PyResult<u32> {
    match token.is_instance_of::<PyInt>() {
        true => Ok(NO_TOKEN),
        false => Err(error),
    }
}

/// What a specification is known by. Holds the GIL, as all that is done for a request whose grammar is at hand: taking it
/// back while an engine's thread runs costs more than the work.
#[pyfunction]
pub fn specification_digest<'py>(kind: &str, text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(kind.len() as u64).to_le_bytes());
    hasher.update(kind.as_bytes());
    match text.to_str() {
        Ok(text) => hasher.update(text.as_bytes()),
        // Half a character is no text, but is not to be taken for another specification either.
        Err(_) => {
            let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
            hasher.update(bytes.cast::<PyBytes>()?.as_bytes())
        }
    };
    Ok(PyBytes::new(text.py(), hasher.finalize().as_bytes()))
}
