// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

@Timeout(300)
class HttpSlotsTest {
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch goOn = new CountDownLatch(1);

    private HttpService serveOneAtATime() {
        return serveOneAtATime(Thread.ofVirtual().factory());
    }

    private HttpService serveOneAtATime(ThreadFactory handlers) {
        var service = new HttpService("test", TestClient.loopback(1), handlers);
        service.route("POST", "/quick", call -> call.respondText(200, "text/plain", "done"));
        service.route(
                "POST",
                "/answer-then-wait",
                call -> {
                    call.respondText(200, "text/plain", "done");
                    await(goOn);
                });
        service.route(
                "POST",
                "/refuse-then-wait",
                call -> {
                    call.respondProblem(HttpProblem.of(400, "bad", "by the test"));
                    await(goOn);
                });
        service.route(
                "POST",
                "/wait-then-answer",
                call -> {
                    begun.countDown();
                    await(goOn);
                    call.respondText(200, "text/plain", "done");
                });
        service.start();
        return service;
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
    }

    /// Its handler may still be on its way out.
    @Test
    void whoHasAnAnswerMayAskAgainAtOnceOnAnotherConnection() throws Exception {
        try (var service = serveOneAtATime()) {
            for (var path : new String[] {"/answer-then-wait", "/refuse-then-wait"}) {
                assertThat(TestClient.postAlone(service.port(), path, "").statusCode())
                        .isIn(200, 400);
                assertThat(TestClient.postAlone(service.port(), "/quick", "").statusCode())
                        .as("behind %s", path)
                        .isEqualTo(200);
            }
            goOn.countDown();
        }
    }

    @Test
    void whileACallIsWorkedOnTheNextIsRefusedAndAfterwardsServed() throws Exception {
        try (var service = serveOneAtATime();
                var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            var first =
                    threads.submit(
                            () -> TestClient.postAlone(service.port(), "/wait-then-answer", ""));
            await(begun);
            assertThat(TestClient.postAlone(service.port(), "/quick", "").statusCode())
                    .isEqualTo(503);
            goOn.countDown();
            assertThat(first.get(60, TimeUnit.SECONDS).statusCode()).isEqualTo(200);
            for (int i = 0; i < 20; i++) { // the slot was given back once
                assertThat(TestClient.postAlone(service.port(), "/quick", "").statusCode())
                        .isEqualTo(200);
            }
        }
    }

    @Test
    void aCallThatGetsNoThreadIsRefusedAndGivesItsSlotBack() throws Exception {
        var none = new AtomicBoolean();
        ThreadFactory scarce =
                work -> {
                    if (none.get()) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    return Thread.ofVirtual().unstarted(work);
                };
        try (var service = serveOneAtATime(scarce)) {
            none.set(true);
            for (int i = 0; i < 2; i++) { // the second finds the slot free
                var refused = TestClient.postAlone(service.port(), "/quick", "body");
                assertThat(refused.statusCode()).isEqualTo(503);
                assertThat(refused.headers().firstValue("Retry-After")).isPresent();
                assertThat(refused.body()).contains("no thread");
                assertThat(service.runningCalls()).isZero();
            }
            none.set(false);
            assertThat(TestClient.postAlone(service.port(), "/quick", "body").statusCode())
                    .isEqualTo(200);
        }
    }
}
