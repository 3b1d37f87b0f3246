//! What every store must do, written against the ports.
//!
//! A store's `tests/conformance.rs` is one line: `twobox_testkit::store_conformance!(MyFixture);`. A change of
//! behaviour starts here.

mod fixture;
pub mod inbox;
pub mod lanes;
pub mod replay;
pub mod sweep;
pub mod waiting;

pub use self::fixture::{HandlerScript, StoreFixture};

/// Stamps one named test per case of the suite for a [`StoreFixture`](crate::conformance::StoreFixture).
#[macro_export]
macro_rules! store_conformance {
    ($fixture:ty) => {
        $crate::conformance_cases! { $fixture;
            lanes: rf_01_committed_messages_are_read_in_order, rf_01_rolled_back_messages_do_not_exist,
                s5_a_lane_has_one_holder_and_tokens_grow, s5_a_stale_lease_writes_nothing,
                renewing_keeps_the_token, a_released_lane_is_free_at_once, l7_a_relay_takes_only_its_own_source,
                l6_a_destination_nobody_registers_becomes_unrouted, l6_registering_takes_a_lane_back,
                rf_14_a_relay_that_reaches_everything_takes_every_lane,
                s13_a_lease_from_a_clock_that_jumped_is_over, l1_cursor_and_waiting_rows_move_together,
                l3_an_outage_is_shown_and_changes_nothing_else, a_commit_wakes_whoever_watches,
                s19_an_undecodable_row_hides_nothing, l7_reading_passes_over_other_destinations,
                reading_stops_at_its_limits, the_cursor_never_moves_back;
            waiting: rf_04_a_failed_message_is_due_after_its_delay, adr_05_a_scheduled_message_joins_when_due,
                s12_only_the_head_of_a_key_and_what_follows_it_is_due, s12_block_keeps_the_key_waiting,
                s12_step_over_lets_the_next_one_go, s12_fail_key_takes_the_rest_along,
                l5_order_survives_a_clock_that_steps_back, s13_no_message_is_parked_beyond_the_longest_delay,
                l6_expired_messages_are_due_at_once, s5_sent_is_final, held_keys_are_reported,
                s12_different_keys_do_not_wait_for_each_other, l5_scheduled_for_tomorrow_is_no_part_of_its_key,
                a_key_follows_its_head_in_one_batch, l5_what_joins_later_comes_later, a_stale_lease_settles_no_waiting_row;
            replay: rf_05_dead_letters_are_listed_with_their_reason, l10_replay_keeps_id_and_place,
                l10_replay_under_a_new_id_goes_to_the_end, l10_callbacks_are_due_until_confirmed,
                s12_blocked_keys_are_listed_and_released, replay_is_bounded_and_filtered,
                dead_letters_are_paged,
                rf_05_dead_letters_are_counted_up_to_a_bound, rf_05_dead_letters_of_a_time_are_chosen,
                rf_05_l2_a_purged_message_is_gone, adr_07_s12_a_purged_head_lets_its_key_go_on,
                s18_purge_is_bounded_and_filtered, l10_another_death_is_not_the_one_that_was_meant,
                dead_letters_of_one_id_are_paged;
            inbox: rf_08_effect_once_and_the_stored_response_after, s3_the_key_is_consumer_source_and_id,
                s4_a_swallowed_sql_error_commits_nothing, s6_a_panic_is_a_failure,
                rf_08_a_failure_leaves_nothing_and_runs_again, a_rejection_is_stored_and_its_effects_are_not,
                l10_a_rejection_runs_again_under_a_higher_replay_number, s8_another_body_under_the_same_id_is_a_conflict,
                l4_a_failure_holds_its_key_and_nobody_else, s9_what_was_forgotten_is_refused_as_too_old,
                s9_a_message_from_the_future_is_refused_for_now, an_unknown_endpoint_leaves_no_row,
                w7_what_was_not_reached_is_said_so, rf_25_a_response_beyond_the_limit_is_rejected,
                follow_ups_commit_with_the_effect, results_survive_a_reopening, one_bad_neighbour_spoils_nobody;
            sweep: rf_12_only_old_sent_messages_are_trimmed, s18_sweeping_goes_in_small_batches,
                s9_purging_raises_the_watermark_with_it, s18_dead_letters_are_never_swept,
                s9_the_watermark_never_falls, l11_a_held_lane_pins_nobody_elses_log;
        }
    };
}

/// Used by [`store_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($fixture:ty; $($module:ident: $($case:ident),+;)+) => {$(
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    $crate::conformance::$module::$case::<$fixture>().await;
                }
            )+
        }
    )+};
}
