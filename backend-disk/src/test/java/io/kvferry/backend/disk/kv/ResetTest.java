// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;

/// Requests that load, run or end while the store is being emptied.
class ResetTest {
    private static final Duration LIMIT = Duration.ofSeconds(30);
    private static final int BLOCKS = 6;

    private final HeldDisk disk = new HeldDisk();
    private ConnectorHarness engine;

    @TempDir Path root;

    @BeforeEach
    void open() {
        Map<String, Object> options =
                Map.of("shared_storage_path", root.toString(), "reserve", 0, "run_blocks", 1);
        engine = ConnectorHarness.open(disk, KvRole.BOTH, "e", options, HarnessShape.small());
    }

    @AfterEach
    void close() {
        disk.release();
        engine.close();
    }

    private static int[] prompt(int first) {
        var tokens = new int[BLOCKS * HarnessShape.small().blockTokens() + 1];
        Arrays.setAll(tokens, i -> first + i);
        return tokens;
    }

    private HarnessRequest admit(String id, int[] tokens) {
        var request = engine.submit(id, tokens);
        engine.admit(request);
        return request;
    }

    private void computeAndEnd(HarnessRequest request) {
        engine.prefill(request, 100);
        engine.finish(request, FinishReason.STOP);
        engine.settle(LIMIT);
    }

    /// Its blocks were read before the reset, and computed anew after it, as an engine does.
    @Test
    void aRequestThatLoadsDuringAResetIsSavedAfterwards() throws Exception {
        computeAndEnd(admit("first", prompt(1)));
        assertThat(BlockFiles.under(root)).hasSize(BLOCKS);
        var loading = engine.submit("loading", prompt(1));
        disk.hold(); // so that the step does not report it
        assertThat(engine.admit(loading)).as("tokens that it loads").isPositive();
        engine.step();
        disk.release();
        awaitReads();
        assertThat(engine.scheduler().resetCache(Deadline.in(LIMIT)).toCompletableFuture().get())
                .isTrue();
        assertThat(BlockFiles.under(root)).isEmpty();
        engine.awaitLoad(loading, LIMIT);
        engine.startOver(loading);
        engine.admit(loading);
        computeAndEnd(loading);
        assertThat(BlockFiles.under(root)).hasSize(BLOCKS);
    }

    /// Until the workers have made no call of the file system for a while.
    private void awaitReads() throws InterruptedException {
        var limit = Deadline.in(LIMIT);
        long before = -1;
        while (disk.fileCalls() != before && !limit.passed()) {
            before = disk.fileCalls();
            Thread.sleep(500);
        }
    }

    @Test
    void nothingIsSavedWhileAResetWaitsAndWhatRunsIsSavedAfterIt() throws Exception {
        disk.holdSaves();
        var before = admit("before", prompt(1));
        engine.prefill(before, 100);
        int leases = engine.openLeases().size();
        assertThat(leases).as("leases of the save under way").isPositive();
        var reset = engine.scheduler().resetCache(Deadline.in(LIMIT)).toCompletableFuture();
        engine.preempt(before);
        var ended = admit("ended", prompt(1_000));
        engine.prefill(ended, 100);
        engine.finish(ended, FinishReason.STOP);
        var running = admit("running", prompt(2_000));
        engine.prefill(running, 100);
        assertThat(reset).isNotDone();
        assertThat(engine.openLeases()).as("leases during the reset").hasSize(leases);
        disk.release();
        engine.stepUntil("the end of the reset", LIMIT, reset::isDone);
        assertThat(reset.get()).isTrue();
        assertThat(BlockFiles.under(root)).isEmpty();
        engine.finish(running, FinishReason.STOP);
        engine.finish(before, FinishReason.ABORT);
        engine.settle(LIMIT);
        assertThat(BlockFiles.under(root)).as("of the one that ran on").hasSize(BLOCKS);
    }

    /// It would delete what another connector saves in the folder then.
    @Test
    void aResetThatWaitsForSavesIsGivenUpWhenItsConnectorIsClosed() throws Exception {
        disk.holdSaves();
        engine.prefill(admit("r", prompt(1)), 100);
        assertThat(engine.openLeases()).as("of the save under way").isNotEmpty();
        var reset = engine.scheduler().resetCache(Deadline.in(LIMIT)).toCompletableFuture();
        assertThat(reset).isNotDone();
        engine.scheduler().close();
        assertThat(reset.get()).isFalse();
    }
}
