use proptest::prelude::*;

use std::fs::OpenOptions;
use std::thread;

use super::super::append::append;
use super::super::layout::HEAD_LEN;
use super::super::record::example;
use super::*;

/// The longest line that is held.
const MAX_LINE: u64 = 1 << 20;

fn portion(lines: usize, bytes: usize) -> Portion {
    Portion {
        lines,
        bytes,
        line_bytes: u64::MAX,
    }
}

/// A file in a directory of its own, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("lanekeeper-file-{}", uuid::Uuid::now_v7());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir.join("s.spool"))
    }

    fn append(&self, number: u32) {
        append(&self.0, &example("s", number).to_line(), LOCK_WAIT).unwrap();
    }

    fn open(&self) -> SessionFile {
        SessionFile::open(&self.0, MAX_LINE).unwrap().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
    }
}

fn numbers(lines: &[Line]) -> Vec<u128> {
    let number = |line: &Line| match line {
        Line::Whole(json) => {
            let record: super::super::Record = serde_json::from_str(json).unwrap();
            Some(record.message_id.as_u128())
        }
        Line::Torn(_) | Line::Oversized(_) => None,
    };
    lines.iter().filter_map(number).collect()
}

#[test]
fn lines_come_back_in_order_in_batches_and_the_file_goes_with_the_last() {
    let scratch = Scratch::new();
    (1..=5).for_each(|n| scratch.append(n));
    let mut file = scratch.open();
    let first = file.read(portion(2, usize::MAX)).unwrap();
    assert_eq!(numbers(&first.lines), [1, 2]);
    assert_eq!(file.advance(first.end).unwrap(), After::More);
    // Another drain, after a crash: goes on behind the offset.
    let mut file = scratch.open();
    let one = file.read(portion(9, 1)).unwrap();
    assert_eq!(numbers(&one.lines), [3]);
    file.advance(one.end).unwrap();
    let rest = file.read(portion(9, usize::MAX)).unwrap();
    assert_eq!(numbers(&rest.lines), [4, 5]);
    assert_eq!(file.advance(rest.end).unwrap(), After::Gone);
    assert!(!scratch.0.exists());
    assert!(SessionFile::open(&scratch.0, MAX_LINE).unwrap().is_none());
}

#[test]
fn what_waits_is_counted_from_the_offset_on_without_what_is_being_written() {
    let scratch = Scratch::new();
    (1..=3).for_each(|n| scratch.append(n));
    let mut file = scratch.open();
    let sent = file.read(portion(1, usize::MAX)).unwrap().end;
    file.advance(sent).unwrap();
    let end = fs::metadata(&scratch.0).unwrap().len();
    let mut written = OpenOptions::new().append(true).open(&scratch.0).unwrap();
    // Longer than the buffer.
    written.write_all(&[b'x'; 100_000]).unwrap();
    assert_eq!(file.count().unwrap(), (2, end - sent));
    written.write_all(b"\n").unwrap();
    assert_eq!(file.count().unwrap(), (3, end - sent + 100_001));
}

#[test]
fn an_offset_behind_the_end_makes_no_record_count_as_sent() {
    let scratch = Scratch::new();
    scratch.append(1);
    let len = fs::metadata(&scratch.0).unwrap().len();
    // The machine lost its power: the head's page was written, lines before its offset were not.
    let damaged = OpenOptions::new().write(true).open(&scratch.0).unwrap();
    damaged.write_all_at(&head(len + 10), 0).unwrap();
    let read = || numbers(&scratch.open().read(portion(9, usize::MAX)).unwrap().lines);
    assert_eq!(read(), [1]);
    scratch.append(2);
    scratch.append(3);
    assert_eq!(read(), [1, 2, 3]);
}

#[test]
fn the_first_whole_line_is_found_behind_torn_ones() {
    let scratch = Scratch::new();
    fs::write(&scratch.0, [head(HEAD_LEN), b"torn\n\n".to_vec()].concat()).unwrap();
    assert_eq!(scratch.open().first().unwrap(), None);
    scratch.append(7);
    let first: super::super::Record =
        serde_json::from_str(&scratch.open().first().unwrap().unwrap()).unwrap();
    assert_eq!(first.message_id.as_u128(), 7);
}

#[test]
fn a_line_beyond_the_bound_is_a_batch_of_its_own_and_nobody_holds_it() {
    let scratch = Scratch::new();
    scratch.append(1);
    let start = fs::metadata(&scratch.0).unwrap().len();
    let long = [vec![b'x'; 3 * MAX_LINE as usize], b"\n".to_vec()].concat();
    append(&scratch.0, &long, LOCK_WAIT).unwrap();
    scratch.append(2);
    let mut file = scratch.open();
    assert_eq!(file.count().unwrap().0, 3);
    let before = file.read(portion(9, usize::MAX)).unwrap();
    assert_eq!((numbers(&before.lines), before.end), (vec![1], start));
    assert_eq!(file.advance(before.end).unwrap(), After::More);
    let alone = file.read(portion(9, usize::MAX)).unwrap();
    let span = Span {
        offset: start,
        len: long.len() as u64,
    };
    assert_eq!(alone.lines, [Line::Oversized(span)]);
    let copy = scratch.0.with_extension("copy");
    file.copy(span, &mut File::create(&copy).unwrap(), None)
        .unwrap();
    assert!(fs::read(&copy).unwrap() == long);
    let past = Some(Instant::now());
    let late = file.copy(span, &mut File::create(&copy).unwrap(), past);
    assert!(matches!(late, Err(SpoolError::NoTime { .. })), "{late:?}");
    file.advance(alone.end).unwrap();
    assert_eq!(
        numbers(&file.read(portion(9, usize::MAX)).unwrap().lines),
        [2]
    );
}

#[test]
fn a_line_without_its_end_is_not_taken_however_long_it_is() {
    let scratch = Scratch::new();
    scratch.append(1);
    let start = fs::metadata(&scratch.0).unwrap().len();
    let mut written = OpenOptions::new().append(true).open(&scratch.0).unwrap();
    written
        .write_all(&vec![b'x'; 2 * MAX_LINE as usize])
        .unwrap();
    let batch = scratch.open().read(portion(9, usize::MAX)).unwrap();
    assert_eq!((numbers(&batch.lines), batch.end), (vec![1], start));
}

#[test]
fn a_line_that_is_longer_than_asked_for_is_left_for_another_drain() {
    let scratch = Scratch::new();
    (1..=2).for_each(|n| scratch.append(n));
    let file = scratch.open();
    let one = file.read(portion(1, usize::MAX)).unwrap();
    let len = one.end - HEAD_LEN;
    let shorter = Portion {
        line_bytes: len - 1,
        ..portion(9, usize::MAX)
    };
    let none = file.read(shorter).unwrap();
    assert!(none.lines.is_empty() && none.left_one, "{none:?}");
    let both = Portion {
        line_bytes: len,
        ..shorter
    };
    let both = file.read(both).unwrap();
    assert!(both.lines.len() == 2 && !both.left_one, "{both:?}");
}

#[test]
fn an_amended_copy_stands_for_the_record_before_it() {
    let scratch = Scratch::new();
    scratch.append(1);
    scratch.append(2);
    let mut amended = example("s", 2);
    amended.event_type = "amended".to_owned();
    append(&scratch.0, &amended.to_line(), LOCK_WAIT).unwrap();
    scratch.append(3);
    let file = scratch.open();
    let batch = file.read(portion(9, usize::MAX)).unwrap();
    assert_eq!(numbers(&batch.lines), [1, 2, 3]);
    assert!(matches!(&batch.lines[1], Line::Whole(json) if json.contains("amended")));
    assert_eq!(file.count().unwrap().0, 3);
}

#[test]
fn a_drain_that_comes_late_does_not_take_the_offset_back() {
    let scratch = Scratch::new();
    (1..=3).for_each(|n| scratch.append(n));
    let (mut fast, mut slow) = (scratch.open(), scratch.open());
    let (two, one) = (portion(2, usize::MAX), portion(1, usize::MAX));
    fast.advance(fast.read(two).unwrap().end).unwrap();
    slow.advance(slow.read(one).unwrap().end).unwrap();
    assert_eq!(
        numbers(&scratch.open().read(portion(9, usize::MAX)).unwrap().lines),
        [3]
    );
}

#[test]
fn a_record_is_sent_when_the_offset_has_passed_it_or_its_file_is_another_one() {
    let scratch = Scratch::new();
    scratch.append(1);
    let record = append(&scratch.0, &example("s", 2).to_line(), LOCK_WAIT).unwrap();
    let mut file = scratch.open();
    file.advance(file.read(portion(1, usize::MAX)).unwrap().end)
        .unwrap();
    assert!(!file.has_sent(&record).unwrap());
    scratch.append(3);
    file.advance(file.read(portion(1, usize::MAX)).unwrap().end)
        .unwrap();
    assert!(scratch.open().has_sent(&record).unwrap());
    file.advance(file.read(portion(1, usize::MAX)).unwrap().end)
        .unwrap();
    scratch.append(4);
    assert!(scratch.open().has_sent(&record).unwrap());
}

#[test]
fn what_is_appended_during_a_drain_keeps_the_file() {
    let scratch = Scratch::new();
    scratch.append(1);
    let mut file = scratch.open();
    let batch = file.read(portion(9, usize::MAX)).unwrap();
    scratch.append(2);
    assert_eq!(file.advance(batch.end).unwrap(), After::More);
    assert_eq!(
        numbers(&file.read(portion(9, usize::MAX)).unwrap().lines),
        [2]
    );
}

#[test]
fn a_slow_drain_does_no_harm_to_the_file_that_came_after_its_own() {
    let scratch = Scratch::new();
    scratch.append(1);
    let (mut fast, mut slow) = (scratch.open(), scratch.open());
    let end = slow.read(portion(9, usize::MAX)).unwrap().end;
    assert_eq!(fast.advance(end).unwrap(), After::Gone);
    scratch.append(2);
    assert_eq!(slow.advance(end).unwrap(), After::Gone);
    assert_eq!(
        numbers(&scratch.open().read(portion(9, usize::MAX)).unwrap().lines),
        [2]
    );
}

#[test]
fn a_torn_offset_sends_the_file_again_from_its_start() {
    let scratch = Scratch::new();
    (1..=2).for_each(|n| scratch.append(n));
    let mut file = scratch.open();
    file.advance(file.read(portion(1, usize::MAX)).unwrap().end)
        .unwrap();
    file.file.write_all_at(b"7", 20).unwrap();
    assert_eq!(
        numbers(&scratch.open().read(portion(9, usize::MAX)).unwrap().lines),
        [1, 2]
    );
}

#[test]
fn parallel_appends_and_drains_neither_lose_nor_reorder() {
    const EACH: u128 = 100;
    let scratch = Scratch::new();
    let mut seen: Vec<u128> = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u32)
            .map(|writer| {
                let scratch = &scratch;
                scope.spawn(move || (0..100).for_each(|n| scratch.append(writer * 100 + n)))
            })
            .collect();
        loop {
            let done = writers.iter().all(|writer| writer.is_finished());
            if let Some(mut file) = SessionFile::open(&scratch.0, MAX_LINE).unwrap() {
                let batch = file.read(portion(7, usize::MAX)).unwrap();
                seen.extend(numbers(&batch.lines));
                file.advance(batch.end).unwrap();
            } else if done {
                break;
            }
        }
    });
    let of = |writer: u128| seen.iter().copied().filter(move |n| n / EACH == writer);
    for writer in 0..2 {
        assert!(of(writer).eq(writer * EACH..(writer + 1) * EACH));
    }
    assert_eq!(seen.len() as u128, 2 * EACH);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_crash_at_any_byte_of_an_append_costs_that_append_alone(cut in 0_usize..400) {
        let scratch = Scratch::new();
        scratch.append(1);
        let before = fs::metadata(&scratch.0).unwrap().len();
        scratch.append(2);
        let len = fs::metadata(&scratch.0).unwrap().len();
        let cut = len.saturating_sub(cut as u64);
        OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(cut).unwrap();
        scratch.append(3);
        let batch = scratch.open().read(portion(9, usize::MAX)).unwrap();
        // A record that lacks but its newline is whole.
        let expected = match cut {
            _ if cut + 1 >= len => vec![1, 2, 3],
            _ if cut + 1 >= before => vec![1, 3],
            _ => vec![3],
        };
        prop_assert_eq!(numbers(&batch.lines), expected);
    }

    #[test]
    fn any_bytes_in_the_place_of_a_file_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let scratch = Scratch::new();
        fs::write(&scratch.0, &bytes).unwrap();
        let mut file = scratch.open();
        let batch = file.read(portion(99, usize::MAX)).unwrap();
        prop_assert!(numbers(&batch.lines).is_empty());
        file.advance(batch.end).unwrap();
        prop_assert!(!scratch.0.exists());
    }

    #[test]
    fn a_torn_tail_is_handed_out_once_nobody_can_be_writing_it(cut in 1_usize..100) {
        let scratch = Scratch::new();
        scratch.append(1);
        let end = fs::metadata(&scratch.0).unwrap().len();
        let torn = &example("s", 2).to_line()[..cut];
        OpenOptions::new().append(true).open(&scratch.0).unwrap().write_all(torn).unwrap();
        let mut file = scratch.open();
        let batch = file.read(portion(9, usize::MAX)).unwrap();
        prop_assert_eq!(numbers(&batch.lines), [1]);
        let tail = Span { offset: end, len: cut as u64 };
        prop_assert_eq!(file.advance(batch.end).unwrap(), After::GoneWithTail(tail));
        prop_assert!(!scratch.0.exists());
        prop_assert_eq!(file.beginning(tail, 1_000).unwrap(), torn);
    }

    /// What a disk may do to a file: whatever line was not touched is still there, in its place.
    #[test]
    fn flipped_bits_cost_the_lines_that_they_hit_alone(
        hits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..6),
    ) {
        const LINES: u32 = 6;
        let scratch = Scratch::new();
        (1..=LINES).for_each(|n| scratch.append(n));
        let mut bytes = fs::read(&scratch.0).unwrap();
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|at| *at >= HEAD_LEN as usize && bytes[at - 1] == b'\n')
            .collect();
        let mut touched = std::collections::BTreeSet::new();
        for (at, bit) in hits {
            let at = at.index(bytes.len() - HEAD_LEN as usize) + HEAD_LEN as usize;
            bytes[at] ^= 1 << bit;
            let line = starts.iter().filter(|start| **start <= at).count();
            touched.insert(line as u128);
            // A newline that is gone joins two lines.
            if starts.contains(&(at + 1)) {
                touched.insert(line as u128 + 1);
            }
        }
        fs::write(&scratch.0, &bytes).unwrap();
        let mut file = scratch.open();
        let mut seen = Vec::new();
        loop {
            let batch = file.read(portion(2, usize::MAX)).unwrap();
            seen.extend(numbers(&batch.lines));
            if file.advance(batch.end).unwrap() != After::More {
                break;
            }
        }
        prop_assert!(seen.is_sorted());
        let whole = (1..=u128::from(LINES)).filter(|n| !touched.contains(n));
        for number in whole {
            prop_assert!(seen.contains(&number), "{} is lost of {:?}", number, seen);
        }
        prop_assert!(!scratch.0.exists());
    }

    /// As `cat a.spool b.spool > c.spool`, of somebody who mends by hand.
    #[test]
    fn files_that_were_concatenated_keep_every_record_of_both(first in 0_u32..5, second in 0_u32..5) {
        let (one, other) = (Scratch::new(), Scratch::new());
        (1..=first).for_each(|n| one.append(n));
        (1..=second).for_each(|n| other.append(first + n));
        let mut bytes = fs::read(&one.0).unwrap_or_default();
        bytes.extend(fs::read(&other.0).unwrap_or_default());
        fs::write(&one.0, bytes).unwrap();
        let batch = one.open().read(portion(99, usize::MAX)).unwrap();
        prop_assert!(numbers(&batch.lines).into_iter().eq(1..=u128::from(first + second)));
    }
}
