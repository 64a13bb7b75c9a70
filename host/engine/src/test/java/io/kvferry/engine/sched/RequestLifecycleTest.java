// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.block.RequestBlocks;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.sched.RequestLifecycle.Change;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.stream.Generation;
import io.kvferry.engine.stream.ReaderWaker;
import io.kvferry.engine.stream.TokenSequence;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

class RequestLifecycleTest {
    private final RequestLifecycle lifecycle = new RequestLifecycle();
    private final CachePool pool = new CachePool(16, CachePool.Evictions.IGNORED);
    private final ReaderWaker waker = new ReaderWaker();
    private int ids;

    private RequestState request(int priority) {
        var id = "r" + ++ids;
        var request =
                GenerationRequest.of(new int[] {1, 2, 3}, SamplingParams.greedy(1))
                        .withPriority(priority);
        var hasher = new BlockHasher(new byte[32], 4);
        return new RequestState(
                id,
                request,
                new Generation(id, new TokenSequence(request.prompt()), waker, _ -> {}, _ -> {}),
                new HashChain(hasher.root(""), 1),
                new RequestBlocks(pool, 1),
                LoadFailurePolicy.FAIL,
                4,
                BlockHasher.Extra.NONE);
    }

    private RequestState entered(int priority) {
        var request = request(priority);
        lifecycle.change(request, Change.ENTER);
        return request;
    }

    private List<RequestState> waiting() {
        var all = new ArrayList<RequestState>();
        for (var at = lifecycle.firstWaiting(); at != null; at = RequestLifecycle.next(at)) {
            all.add(at);
        }
        return all;
    }

    private RequestState in(Status status) {
        var request = request(0);
        switch (status) {
            case NEW -> {}
            case WAITING -> lifecycle.change(request, Change.ENTER);
            case LOADING -> {
                lifecycle.change(request, Change.ENTER);
                lifecycle.change(request, Change.START_LOAD);
            }
            case READY -> {
                lifecycle.change(request, Change.ENTER);
                lifecycle.change(request, Change.START_LOAD);
                lifecycle.change(request, Change.END_LOAD);
            }
            case RUNNING -> {
                lifecycle.change(request, Change.ENTER);
                lifecycle.change(request, Change.RUN);
            }
            case ENDED -> {
                lifecycle.change(request, Change.ENTER);
                lifecycle.change(request, Change.END);
            }
        }
        assertThat(request.status()).isEqualTo(status);
        return request;
    }

    @ParameterizedTest
    @EnumSource(Change.class)
    void allowsAChangeInItsStatesAndRejectsItInOthers(Change change) {
        for (var from : Status.values()) {
            var request = in(from);
            if (change.from.contains(from)) {
                lifecycle.change(request, change);
                assertThat(request.status()).isEqualTo(change.to);
            } else {
                assertThatThrownBy(() -> lifecycle.change(request, change))
                        .as("from %s", from)
                        .isInstanceOf(IllegalStateException.class)
                        .hasMessageContaining(request.id);
                assertThat(request.status()).isEqualTo(from);
            }
        }
    }

    @Test
    void nothingHappensToAnEndedRequest() {
        assertThat(Change.values()).noneMatch(change -> change.from.contains(Status.ENDED));
    }

    @Test
    void keepsWaitingRequestsInOrderOfPriorityThenOfArrival() {
        var late = entered(5);
        var first = entered(0);
        var second = entered(0);
        var urgent = entered(-1);
        assertThat(waiting()).containsExactly(urgent, first, second, late);

        lifecycle.change(second, Change.RUN);
        lifecycle.change(second, Change.RESTART);
        assertThat(waiting()).containsExactly(urgent, second, first, late);
    }

    @Test
    void hasTheLeastUrgentRunningRequestLast() {
        var urgent = entered(-1);
        var late = entered(5);
        var plain = entered(0);
        for (var request : List.of(late, urgent, plain)) {
            lifecycle.change(request, Change.RUN);
        }
        assertThat(lifecycle.running()).containsExactly(urgent, plain, late);
    }

    @Test
    void countsPreemptedRequestsWhileTheyWait() {
        var request = entered(0);
        lifecycle.change(request, Change.RUN);
        request.preemptions++;
        lifecycle.change(request, Change.RESTART);
        assertThat(lifecycle.preemptedCount()).isEqualTo(1);
        lifecycle.change(request, Change.RUN);
        assertThat(lifecycle.preemptedCount()).isZero();
    }

    @Test
    void keepsItsListsWholeUnderRandomChanges() {
        var random = new Random(1);
        var all = new ArrayList<RequestState>();
        for (int i = 0; i < 20_000; i++) {
            if (all.size() < 50) {
                all.add(entered(random.nextInt(3)));
            }
            var request = all.get(random.nextInt(all.size()));
            var change = Change.values()[random.nextInt(Change.values().length)];
            if (change.from.contains(request.status())) {
                lifecycle.change(request, change);
            }
            all.removeIf(RequestState::ended);
            int queued = lifecycle.waitingCount() + lifecycle.loadingCount();
            assertThat(queued + lifecycle.running().size()).isEqualTo(all.size());
            assertThat(waiting())
                    .allMatch(at -> at.status() == Status.WAITING)
                    .isSortedAccordingTo((a, b) -> Integer.compare(a.priority(), b.priority()));
        }
    }
}
