// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Optional;

/// Warnings at the start about what other hosts can do.
class HttpOptionsTest {
    private static final Logger LOGGER = (Logger) LoggerFactory.getLogger(HttpOptions.class);

    private final ListAppender<ILoggingEvent> log = new ListAppender<>();
    private final HttpOptions options = new HttpOptions();

    @BeforeEach
    void listen() {
        log.start();
        LOGGER.addAppender(log);
        LOGGER.setLevel(Level.WARN);
    }

    @AfterEach
    void stopListening() {
        LOGGER.detachAppender(log);
        LOGGER.setLevel(null);
    }

    private List<String> warnings() {
        log.list.clear();
        options.settings();
        return log.list.stream().map(ILoggingEvent::getFormattedMessage).toList();
    }

    @Test
    void aModelThatOtherHostsCanUseWithoutAKey() {
        assertThat(warnings()).isEmpty();
        options.host = "0.0.0.0";
        assertThat(warnings()).singleElement().asString().contains("without --api-key");
        options.apiKey = "key";
        assertThat(warnings()).isEmpty();
    }

    @Test
    void metricsThatOtherHostsCanRead() {
        options.adminPort = Optional.of(0);
        assertThat(warnings()).isEmpty();
        options.adminHost = "0.0.0.0";
        assertThat(warnings()).singleElement().asString().contains("metrics can be read");
    }
}
