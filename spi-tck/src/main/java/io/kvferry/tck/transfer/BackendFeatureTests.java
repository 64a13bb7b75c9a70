// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Threading;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.List;

/// What each claimed feature promises, and what goes without it, of [TransferBackendContract].
abstract class BackendFeatureTests extends BackendPeerTests {
    @Test
    @DisplayName(
            "C34 which way a transfer would take is said in words, and nothing is moved for it")
    void explanationsMoveNothing() {
        var sides = sides(anyRoute(), UNIT);
        fill(source(sides), random(UNIT, 34));
        var before = contents(target(sides));
        var text =
                sides.near()
                        .backend
                        .explain(
                                new TransferRequest(
                                        sides.route().operation(),
                                        sides.prepareLocal(sides.local().whole()),
                                        sides.prepareRemote(sides.remote().whole()),
                                        soon()));
        assertThat(text).isNotBlank();
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(contents(target(sides))).isEqualTo(before);
        var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
        done(transfer);
        assertThat(transfer.attempts()).doesNotHaveDuplicates();
    }

    @Test
    @DisplayName("C36 there is no empty list of descriptors, and no empty part of one")
    void emptyListsAreRefused() {
        var sides = sides(anyRoute(), UNIT);
        assertThatThrownBy(() -> DescriptorList.builder(sides.route().local()).build())
                .isInstanceOf(IllegalArgumentException.class);
        var local = sides.prepareLocal(sides.local().whole());
        refuses(
                () -> sides.near().backend.select(local, new int[0]),
                "no index at all",
                ErrorCode.INVALID_REQUEST);
    }

    @Test
    @DisplayName(
            "C54 a failed transfer says of each descriptor whether it moved where that is claimed, and of none where not")
    void failuresNameWhatMoved() {
        var sides = sides(anyRoute(), 4 * UNIT);
        var gone = sides.remote().agent().area(sides.route().remote(), UNIT);
        if (sides.peer().isPresent()) {
            sides.near().meet(sides.remote().agent());
        }
        fill(source(sides), random(4 * UNIT, 54));
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                sides.prepareLocal(
                        DescriptorList.builder(sides.route().local())
                                .addStrided(near.device(), near.address(), UNIT, UNIT, 3)
                                .build());
        var remote =
                sides.prepareRemote(
                        DescriptorList.builder(sides.route().remote())
                                .add(far.device(), far.address(), UNIT)
                                .add(
                                        gone.registration().device(),
                                        gone.registration().address(),
                                        UNIT)
                                .add(far.device(), far.address() + 2 * UNIT, UNIT)
                                .build());
        gone.registration().close();
        Transfer transfer;
        try {
            transfer =
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(), local, remote, soon()));
        } catch (KvFerryException e) {
            assertThat(e.code())
                    .isIn(ErrorCode.CLOSED, ErrorCode.NOT_FOUND, ErrorCode.PEER_REFUSED);
            return; // refused whole, before anything was started
        }
        var outcome = end(transfer);
        assertThat(outcome).isInstanceOf(TransferOutcome.Failed.class);
        var moved = ((TransferOutcome.Failed) outcome).descriptors();
        if (!has(Feature.PER_DESCRIPTOR_RESULTS)) {
            assertThat(moved).as("results that are not claimed").isEmpty();
            return;
        }
        assertThat(moved).hasSize(3);
        assertThat(moved[1]).as("the range that is gone has moved").isFalse();
        var from = contents(source(sides));
        var to = contents(target(sides));
        for (int i = 0; i < 3; i += 2) {
            if (moved[i]) {
                int at = (int) (i * UNIT);
                assertThat(Arrays.copyOfRange(to, at, at + (int) UNIT))
                        .as("range %d, which is said to have moved", i)
                        .isEqualTo(Arrays.copyOfRange(from, at, at + (int) UNIT));
            }
        }
    }

    @Test
    @DisplayName(
            "C55 a target that nobody polls is reached all the same, unless NEEDS_TARGET_PROGRESS is claimed")
    void targetsNeedNoTurnUnlessClaimed() {
        if (!remote()) {
            assertThat(has(Feature.NEEDS_TARGET_PROGRESS)).isFalse();
            return;
        }
        var sides = sides(anyRoute(), 4 * UNIT);
        var data = random(4 * UNIT, 55);
        fill(source(sides), data);
        var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
        if (!has(Feature.NEEDS_TARGET_PROGRESS)) {
            until(
                    "end of a transfer whose target is not polled",
                    List.of(sides.near()),
                    () -> transfer.poll().isPresent());
            assertThat(transfer.poll().orElseThrow()).isInstanceOf(TransferOutcome.Done.class);
        } else {
            assertThat(claimed().threading())
                    .as("poll() of a CONCURRENT backend does nothing, so nothing can wait for it")
                    .isEqualTo(Threading.CONFINED);
        }
        done(transfer);
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C56 with CHECKSUM, bytes that are damaged on their way are a failed transfer")
    void damageOnTheWayIsNoticed() {
        assumeTrue(has(Feature.CHECKSUM), "the backend does not claim CHECKSUM");
        var sides = sides(anyRoute(), 4 * UNIT);
        fill(source(sides), random(4 * UNIT, 56));
        assumeTrue(damageInTransit(), "nothing can be damaged: override damageInTransit()");
        var outcome = end(submit(sides, sides.local().whole(), sides.remote().whole()));
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        TransferOutcome.Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(ErrorCode.CORRUPT));
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }
}
