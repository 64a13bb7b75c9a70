// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;

import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// One line for each request: who asked for what, how it ended, how long it took, its id.
class AccessLogTest {
    private static final class Lines extends AppenderBase<ILoggingEvent> {
        final BlockingQueue<String> seen = new LinkedBlockingQueue<>();

        @Override
        protected void append(ILoggingEvent event) {
            seen.add(event.getFormattedMessage());
        }

        /// The line of a request; other tests of this JVM may have requests too.
        String of(String requestId) throws InterruptedException {
            while (true) {
                var line = seen.poll(60, TimeUnit.SECONDS);
                assertThat(line).as("the line of " + requestId).isNotNull();
                if (String.valueOf(line).endsWith(" " + requestId)) {
                    return String.valueOf(line);
                }
            }
        }
    }

    @Test
    void hasALineForEachRequest() throws Exception {
        var logger = (Logger) LoggerFactory.getLogger("kvferry.access");
        var level = logger.getLevel();
        var lines = new Lines();
        lines.start();
        logger.addAppender(lines);
        logger.setLevel(Level.INFO);
        try (var http = new HttpService("test", TestClient.loopback())) {
            http.route("POST", "/ok", call -> call.respondText(200, "text/plain", "fine"));
            http.route(
                    "POST",
                    "/bad",
                    _ -> {
                        throw HttpProblem.badRequest("n", "n is wrong");
                    });
            http.start();
            var id = "X-Request-Id";
            TestClient.post(http.port(), "/ok?a=b", "{}", id, "access-log-1");
            assertThat(lines.of("access-log-1"))
                    .matches("127\\.0\\.0\\.1 POST /ok\\?a=b 200 [0-9]+ ms access-log-1");
            TestClient.post(http.port(), "/bad", "{}", id, "access-log-2");
            assertThat(lines.of("access-log-2"))
                    .matches("127\\.0\\.0\\.1 POST /bad 400 [0-9]+ ms access-log-2");
        } finally {
            logger.detachAppender(lines);
            logger.setLevel(level);
        }
    }
}
