//! Measures how long the published reader takes for one update at each time, then one statement for each time.
//!
//! `differential-reader TIMES in-order|reversed` prints the elapsed time and the processor time in seconds.

use std::time::Instant;

use differential_dataflow::capture::{iterator::Iter, Message, Progress};
use timely::progress::Antichain;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let times: u64 = arguments[1].parse().expect("the number of times");
    let updates = (0..times).map(|time| (time, time, 1i64)).collect();
    let mut messages = vec![Message::Updates(updates)];
    let statement = |time| Progress { lower: vec![time], upper: vec![time + 1], counts: vec![(time, 1)] };
    match arguments[2].as_str() {
        "in-order" => messages.extend((0..times).map(statement).map(Message::Progress)),
        "reversed" => messages.extend((0..times).rev().map(statement).map(Message::Progress)),
        other => panic!("{other} is neither in-order nor reversed"),
    }
    let (cpu, start) = (processor_s(), Instant::now());
    let reached = Iter::new(messages.into_iter()).last();
    println!("{} {}", start.elapsed().as_secs_f64(), processor_s() - cpu);
    assert_eq!(reached.map(|(_, frontier)| frontier), Some(Antichain::from_elem(times)));
}

/// The processor time of this process so far, user and system, in seconds.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / 100.0
}
