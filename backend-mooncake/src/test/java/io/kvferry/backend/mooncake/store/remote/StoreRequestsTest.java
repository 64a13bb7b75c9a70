// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// On which thread questions are answered, and how that ends.
class StoreRequestsTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final BlockingQueue<byte[]> answers = new LinkedBlockingQueue<>();
    private final BlockingQueue<Thread> answering = new LinkedBlockingQueue<>();

    /// @param hasThread whether its connection has one for itself
    private record Asker(BlockingQueue<byte[]> answers, boolean hasThread)
            implements SideChannel.Asker {
        @Override
        public boolean answer(byte[] message) {
            return answers.add(message);
        }
    }

    private StoreCode note(Thread thread) {
        answering.add(thread);
        return StoreCode.OK;
    }

    private int code() throws InterruptedException {
        byte[] answer = answers.poll(LIMIT.toSeconds(), TimeUnit.SECONDS);
        return StoreProtocol.open(answer == null ? new byte[0] : answer).i32();
    }

    private static byte[] question(Operation operation) {
        return StoreProtocol.question(operation, 1, LIMIT).toByteArray();
    }

    @Test
    void aQuestionIsAnsweredOnTheThreadOfItsConnectionIfItHasOne() throws InterruptedException {
        try (var requests =
                new StoreRequests("test", 1, 1, (_, _, _, _, _) -> note(Thread.currentThread()))) {
            for (boolean hasThread : new boolean[] {true, false}) {
                for (var operation : Operation.values()) {
                    requests.onRequest(new Asker(answers, hasThread), question(operation));
                    assertThat(code()).isZero();
                    assertThat(answering.remove() == Thread.currentThread())
                            .as("%s %s", operation, hasThread)
                            .isEqualTo(hasThread);
                }
            }
        }
    }

    @Test
    void noMoreLongQuestionsAreAnsweredAtOnceThanThereAreThreadsForThem() throws Exception {
        var goOn = new CountDownLatch(1);
        try (var requests =
                new StoreRequests(
                        "test",
                        1,
                        1,
                        (operation, _, _, _, _) -> {
                            var code = note(Thread.currentThread());
                            if (operation.isLong()) {
                                await(goOn);
                            }
                            return code;
                        })) {
            var asker = new Asker(answers, true);
            var first =
                    CompletableFuture.runAsync(
                            () -> requests.onRequest(asker, question(Operation.GET)));
            assertThat(answering.poll(LIMIT.toSeconds(), TimeUnit.SECONDS)).isNotNull();
            requests.onRequest(asker, question(Operation.GET)); // returns, for it is queued
            assertThat(answers).isEmpty();
            requests.onRequest(asker, question(Operation.EXISTS));
            assertThat(code()).isZero();
            goOn.countDown();
            assertThat(code()).isZero();
            assertThat(code()).isZero();
            first.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
            assertThat(answering).hasSize(2).contains(Thread.currentThread());
        }
    }

    @Test
    void closeWaitsForWhatIsAnsweredOnAnotherThreadAndThenRefuses() throws Exception {
        var begun = new CountDownLatch(1);
        var goOn = new CountDownLatch(1);
        var requests =
                new StoreRequests(
                        "test",
                        1,
                        1,
                        (_, _, _, _, _) -> {
                            begun.countDown();
                            await(goOn);
                            return StoreCode.OK;
                        });
        var asker = new Asker(answers, true);
        var asking =
                CompletableFuture.runAsync(
                        () -> requests.onRequest(asker, question(Operation.EXISTS)));
        await(begun);
        var closing = CompletableFuture.runAsync(requests::close);
        TimeUnit.MILLISECONDS.sleep(100);
        assertThat(closing).isNotDone();
        goOn.countDown();
        closing.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        asking.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        assertThat(code()).isZero();
        requests.onRequest(asker, question(Operation.EXISTS));
        assertThat(code()).isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
    }

    @Test
    void afterCloseNothingIsAnsweredAlsoWhereItWasInterrupted() throws Exception {
        var requests = new StoreRequests("test", 1, 1, (_, _, _, _, _) -> StoreCode.OK);
        Thread.currentThread().interrupt();
        requests.close();
        assertThat(Thread.interrupted()).isTrue();
        requests.onRequest(new Asker(answers, true), question(Operation.EXISTS));
        assertThat(code()).isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(LIMIT.toSeconds(), TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
