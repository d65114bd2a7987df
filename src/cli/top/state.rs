//! What is shown and selected, and what a key means.

use lanekeeper_postgres::inspect::LaneStatus;
use lanekeeper_postgres::operate::LaneAction;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::data::{Action, Snapshot, Subscription};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Lanes,
    Subscriptions,
    Workers,
    /// The events of one session.
    Session,
}

/// What a key or a tick asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Nothing,
    Read,
    Act(Action),
    Leave,
}

#[derive(Debug, Default)]
pub struct State {
    pub view: View,
    pub snapshot: Option<Snapshot>,
    /// Why the picture is not new.
    pub stale: Option<String>,
    pub selected: usize,
    /// Asked for, and done when it is confirmed; with what it is, for people.
    pub asked: Option<(Action, String)>,
    /// What became of the last action.
    pub said: Option<String>,
    followed: Option<(String, String)>,
}

impl State {
    /// The session whose events are shown.
    pub fn followed(&self) -> Option<(String, String)> {
        self.followed.clone()
    }

    pub fn refresh(&mut self, read: Result<Snapshot, String>) {
        // The selected lane stays selected when others come and go.
        let selected = self.lane().map(|lane| lane.lane_id);
        match read {
            Ok(snapshot) => {
                self.snapshot = Some(snapshot);
                self.stale = None;
            }
            Err(reason) => self.stale = Some(reason),
        }
        if self.view == View::Lanes
            && let (Some(lane_id), Some(snapshot)) = (selected, &self.snapshot)
            && let Some(at) = snapshot
                .lanes
                .iter()
                .position(|lane| lane.lane_id == lane_id)
        {
            self.selected = at;
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    pub fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    pub fn rows(&self) -> usize {
        self.snapshot
            .as_ref()
            .map_or(0, |snapshot| match self.view {
                View::Lanes => snapshot.lanes.len(),
                View::Subscriptions => snapshot.subscriptions.len(),
                View::Workers => snapshot.workers.len(),
                View::Session => snapshot.followed.as_ref().map_or(0, |it| it.events.len()),
            })
    }

    /// The selected lane.
    pub fn lane(&self) -> Option<&LaneStatus> {
        let snapshot = self.snapshot.as_ref()?;
        (self.view == View::Lanes).then(|| snapshot.lanes.get(self.selected))?
    }

    /// The selected subscription.
    pub fn subscription(&self) -> Option<&Subscription> {
        let snapshot = self.snapshot.as_ref()?;
        (self.view == View::Subscriptions).then(|| snapshot.subscriptions.get(self.selected))?
    }

    pub fn press(&mut self, key: KeyEvent) -> Request {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Request::Leave;
        }
        if let Some((action, _)) = self.asked.take() {
            return match key.code {
                KeyCode::Char('y') => Request::Act(action),
                _ => {
                    self.said = Some("nothing was changed".to_owned());
                    Request::Nothing
                }
            };
        }
        self.said = None;
        match key.code {
            KeyCode::Char('q') => return Request::Leave,
            KeyCode::Esc if self.view == View::Session => self.show(View::Lanes),
            KeyCode::Esc => return Request::Leave,
            KeyCode::Char('1') => self.show(View::Lanes),
            KeyCode::Char('2') => self.show(View::Subscriptions),
            KeyCode::Char('3') => self.show(View::Workers),
            KeyCode::Tab => self.show(match self.view {
                View::Lanes => View::Subscriptions,
                View::Subscriptions => View::Workers,
                View::Workers | View::Session => View::Lanes,
            }),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::PageDown => self.select(self.selected.saturating_add(10)),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(10)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter => {
                let lane = self
                    .lane()
                    .map(|lane| (lane.stream.clone(), lane.session.clone()));
                if lane.is_some() {
                    self.show(View::Session);
                    self.followed = lane;
                    return Request::Read;
                }
            }
            KeyCode::Char(key) => return self.act(key),
            _ => {}
        }
        Request::Nothing
    }

    fn act(&mut self, key: char) -> Request {
        if let Some(subscription) = self.subscription() {
            let name = subscription.status.subscription.clone();
            return match key {
                'p' => self.ask(
                    format!("pause {name}: nothing of it is delivered until it is resumed"),
                    Action::Pause { subscription: name },
                ),
                'u' => Request::Act(Action::Resume { subscription: name }),
                _ => Request::Nothing,
            };
        }
        let Some(lane) = self.lane() else {
            return Request::Nothing;
        };
        let lane_id = lane.lane_id;
        let of_lane = |action, head| Action::Lane {
            lane_id,
            action,
            head,
        };
        match (key, lane.head_seq) {
            ('r', _) => Request::Act(of_lane(LaneAction::Retry, None)),
            ('u', _) => Request::Act(of_lane(LaneAction::Unpark, None)),
            ('p', _) => {
                let text = format!("park lane {lane_id}: it waits until it is unparked");
                self.ask(text, of_lane(LaneAction::Park, None))
            }
            ('s', Some(head)) => {
                let text = format!("skip seq {head} of lane {lane_id}: it is not delivered");
                self.ask(text, of_lane(LaneAction::Skip, Some(head)))
            }
            _ => Request::Nothing,
        }
    }

    fn ask(&mut self, text: String, action: Action) -> Request {
        self.asked = Some((action, text));
        Request::Nothing
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.selected = 0;
        self.followed = None;
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows().saturating_sub(1));
    }
}

#[cfg(test)]
pub mod tests {
    use jiff::Timestamp;

    use super::*;

    pub fn lane(lane_id: i64, state: &str) -> LaneStatus {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        LaneStatus {
            lane_id,
            stream: "hooks".to_owned(),
            session: format!("session-{lane_id}"),
            subscription: "audit".to_owned(),
            state: state.to_owned(),
            cursor: 6,
            newest_seq: 9,
            behind: 3,
            head_seq: Some(7),
            head_age_s: Some(61.0),
            attempts: 4,
            crashes: 0,
            retry_at: None,
            parked_at: None,
            last_error: Some("503 of \u{1b}[31mexample.com".to_owned()),
            changed_at: at,
            sent_seq: None,
            ack_due_at: None,
            held_by: None,
        }
    }

    pub fn snapshot(lanes: Vec<LaneStatus>) -> Snapshot {
        Snapshot {
            subscriptions: Vec::new(),
            lanes,
            workers: Vec::new(),
            followed: None,
            read_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        }
    }

    fn press(state: &mut State, code: KeyCode) -> Request {
        state.press(KeyEvent::from(code))
    }

    #[test]
    fn a_head_is_skipped_only_when_confirmed_and_only_if_it_is_the_one_that_was_seen() {
        let mut state = State::default();
        state.refresh(Ok(snapshot(vec![lane(1, "blocked"), lane(2, "blocked")])));
        press(&mut state, KeyCode::Down);
        assert_eq!(press(&mut state, KeyCode::Char('s')), Request::Nothing);
        let (_, text) = state.asked.as_ref().unwrap();
        assert!(text.contains("skip seq 7 of lane 2"), "{text}");
        // The lane moved on while the question stood.
        let mut moved = lane(2, "ready");
        moved.head_seq = Some(8);
        state.refresh(Ok(snapshot(vec![moved])));
        let skip = Action::Lane {
            lane_id: 2,
            action: LaneAction::Skip,
            head: Some(7),
        };
        assert_eq!(press(&mut state, KeyCode::Char('y')), Request::Act(skip));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(press(&mut state, KeyCode::Char('n')), Request::Nothing);
        assert_eq!(state.said.as_deref(), Some("nothing was changed"));
        assert!(state.asked.is_none());
    }

    #[test]
    fn the_selected_lane_stays_selected_when_others_come_and_go() {
        let mut state = State::default();
        state.refresh(Ok(snapshot(vec![lane(1, "blocked"), lane(2, "blocked")])));
        press(&mut state, KeyCode::End);
        assert_eq!(state.lane().unwrap().lane_id, 2);
        state.refresh(Ok(snapshot(vec![
            lane(3, "parked"),
            lane(1, "blocked"),
            lane(2, "blocked"),
        ])));
        assert_eq!(state.lane().unwrap().lane_id, 2);
        state.refresh(Ok(snapshot(vec![lane(3, "parked")])));
        assert_eq!(state.lane().unwrap().lane_id, 3);
        state.refresh(Err("Postgres is away".to_owned()));
        assert_eq!(state.lane().unwrap().lane_id, 3, "the last picture stays");
        assert!(state.stale.is_some());
    }

    #[test]
    fn a_session_is_followed_until_another_view_is_chosen() {
        let mut state = State::default();
        assert_eq!(
            press(&mut state, KeyCode::Enter),
            Request::Nothing,
            "there is none"
        );
        state.refresh(Ok(snapshot(vec![lane(1, "blocked")])));
        assert_eq!(press(&mut state, KeyCode::Enter), Request::Read);
        let session = ("hooks".to_owned(), "session-1".to_owned());
        assert_eq!(state.followed(), Some(session));
        assert_eq!(press(&mut state, KeyCode::Esc), Request::Nothing);
        assert_eq!((state.view, state.followed()), (View::Lanes, None));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Request::Leave);
    }
}
