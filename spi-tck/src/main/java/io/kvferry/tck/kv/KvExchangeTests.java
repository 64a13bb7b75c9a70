// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.List;
import java.util.Optional;

/// What holds for a provider that is a [CacheExchange.Provider] too.
abstract class KvExchangeTests extends KvEngineTests {
    @Test
    @DisplayName("H53 an exported prompt that the store has lost can be imported and loaded again")
    void importsWhatItExported(@TempDir Path folder) {
        assumeTrue(provider() instanceof CacheExchange.Provider, "exchanges with no other system");
        assumeTrue(loads(), "nothing is loaded with these options");
        var exchanger = (CacheExchange.Provider) provider();
        assertThat(exchanger.exchangeFormats()).isNotEmpty().doesNotHaveDuplicates();
        for (String format : exchanger.exchangeFormats()) {
            var pair = pair();
            int[] tokens = prompt(format.hashCode(), 3, 2);
            var params = pair.make(tokens);
            var opened = exchange(exchanger, pair.producer.shape(), format, folder.resolve(format));
            assumeTrue(opened.isPresent(), "these options leave nothing to exchange");
            try (var exchange = opened.orElseThrow()) {
                var made = exchangePrompt(pair.producer, tokens);
                var unknown = exchangePrompt(pair.producer, prompt(~format.hashCode(), 3, 2));
                assertMiss(() -> exchange.importPrompt(made, Deadline.in(limit())));
                assertMiss(() -> exchange.exportPrompt(unknown, Deadline.in(limit())));

                var out = exchange.exportPrompt(made, Deadline.in(limit()));
                assertThat(out.name()).isNotEmpty();
                assertThat(out.blocks()).isEqualTo(3);
                assertThat(out.written()).isEqualTo(3);
                var again = exchange.exportPrompt(made, Deadline.in(limit()));
                assertThat(again).isEqualTo(new CacheExchange.Copied(out.name(), 3, 0));

                assumeTrue(pair.takeAway(), "forgetStore is not overridden");
                var in = exchange.importPrompt(made, Deadline.in(limit()));
                assertThat(in).isEqualTo(new CacheExchange.Copied(out.name(), 3, 3));
                assertThat(exchange.importPrompt(made, Deadline.in(limit())).written()).isZero();
            }
            assertThat(pair.fetch(tokens, params)).isEqualTo(3 * shape().blockTokens());
        }
    }

    private Optional<CacheExchange> exchange(
            CacheExchange.Provider exchanger, HarnessShape shape, String format, Path folder) {
        var config = config(producerRole(), "exchange", optionsOfThisTest());
        var options = provider().options().read("options", config.extra());
        var context =
                new WorkerContext(
                        provider().name(),
                        config,
                        options,
                        shape.engine(1),
                        RankInfo.SINGLE,
                        host());
        try {
            return Optional.of(exchanger.openExchange(context, format, folder));
        } catch (KvFerryException e) {
            assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED);
            return Optional.empty();
        }
    }

    private static CacheExchange.Prompt exchangePrompt(ConnectorHarness engine, int[] tokens) {
        var shape = engine.shape();
        var request =
                new HarnessRequest(
                        "exchange", tokens, "", TransferParams.EMPTY, shape, shape.namespace());
        return new CacheExchange.Prompt(tokens, List.of(), request.hashes());
    }

    private static void assertMiss(Runnable copy) {
        assertThatThrownBy(copy::run)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.MISS));
    }
}
