// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// What becomes of the questions of interrupted threads.
class StoreQuestionsTest {
    private static final Duration LIMIT = Duration.ofSeconds(30);

    /// How long a close waits for such questions.
    private static final Duration CLOSING = Duration.ofSeconds(2);

    private final SideChannel channel = new SideChannel("test");
    private final Set<Long> heard = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean answers = new AtomicBoolean(true);
    private final String address =
            channel.listen(
                    "127.0.0.1",
                    (asker, message) -> {
                        var in = StoreProtocol.open(message);
                        in.u8();
                        heard.add(in.i64());
                        if (answers.get()) {
                            asker.answer(StoreProtocol.answer(0).toByteArray());
                        }
                    });

    @AfterEach
    void close() {
        channel.close();
    }

    private StoreQuestions questions() {
        return new StoreQuestions("test", address.substring("tcp://".length()), Optional.empty());
    }

    private static WireWriter question(long number) {
        return StoreProtocol.question(Operation.PUT_END, number, LIMIT);
    }

    private void awaitHeard(long number) {
        var limit = Deadline.in(LIMIT);
        while (!heard.contains(number)) {
            assertThat(limit.passed()).as("question %s", number).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Whether it took less time than it has; else, after a pause of the machine, a question may be
    /// lost.
    private static boolean closes(StoreQuestions questions) {
        long began = System.nanoTime();
        questions.close();
        return System.nanoTime() - began < CLOSING.toNanos();
    }

    @Test
    void closeWaitsForTheQuestionOfAnInterruptedThread() {
        for (long i = 0; i < 20; i++) {
            var questions = questions();
            assertThat(questions.ask(question(-1), LIMIT).code()).isZero();
            Thread.currentThread().interrupt();
            assertThat(questions.askSurely(question(i), LIMIT).code()).isNegative();
            boolean inTime = closes(questions);
            assertThat(Thread.interrupted()).isTrue();
            if (inTime) {
                awaitHeard(i);
            }
        }
    }

    @Test
    void aQuestionIsHeardWheneverItsThreadIsInterrupted() throws InterruptedException {
        for (int i = 0; i < 30; i++) {
            var questions = questions();
            long number = i;
            var asking =
                    Thread.ofPlatform().start(() -> questions.askSurely(question(number), LIMIT));
            LockSupport.parkNanos(100_000 + i * 20_000L);
            asking.interrupt();
            asking.join();
            if (closes(questions)) {
                awaitHeard(i);
            }
        }
    }

    @Test
    void anInterruptedThreadDoesNotAskWhatNeedNotBeHeard() {
        try (var questions = questions()) {
            Thread.currentThread().interrupt();
            assertThat(questions.ask(question(1), LIMIT).code()).isNegative();
            assertThat(Thread.interrupted()).isTrue();
        }
        assertThat(heard).isEmpty();
    }

    @Test
    void theQuestionsOfInterruptedThreadsHaveABound() {
        answers.set(false);
        try (var questions = questions()) {
            Thread.currentThread().interrupt();
            for (int i = 0; i < StoreQuestions.MOST_LATE; i++) {
                assertThat(questions.askSurely(question(i), LIMIT).why()).doesNotContain("others");
            }
            assertThat(questions.askSurely(question(-2), LIMIT).why()).contains("others");
        } finally {
            assertThat(Thread.interrupted()).isTrue();
        }
        assertThat(heard).doesNotContain(-2L);
    }
}
