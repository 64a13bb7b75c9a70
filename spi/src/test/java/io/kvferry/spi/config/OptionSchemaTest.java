// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.math.BigInteger;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

class OptionSchemaTest {
    private static OptionValues read(Option option, Object value) {
        return OptionSchema.of(option).read("options of Test", Map.of(option.name(), value));
    }

    private static void refuses(Option option, Object value) {
        assertThatThrownBy(() -> read(option, value))
                .as(option.type() + " " + value)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> {
                            assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG);
                            assertThat(e)
                                    .hasMessageContaining("options of Test")
                                    .hasMessageContaining(option.name());
                        });
    }

    private static Option option(Option.Type type) {
        return Option.of("x", type, "test");
    }

    @Test
    void readsEveryType() {
        assertThat(read(option(Option.Type.STRING), "a").string("x")).isEqualTo("a");
        assertThat(read(option(Option.Type.BOOLEAN), true).bool("x")).isTrue();
        assertThat(read(option(Option.Type.INTEGER), 7).integer("x")).isEqualTo(7);
        assertThat(read(option(Option.Type.INTEGER), 7.0).integer("x")).isEqualTo(7);
        assertThat(read(option(Option.Type.INTEGER), Long.MAX_VALUE).integer("x"))
                .isEqualTo(Long.MAX_VALUE);
        assertThat(read(option(Option.Type.NUMBER), 0.25).number("x")).isEqualTo(0.25);
        assertThat(read(option(Option.Type.PATH), "a/b").path("x")).isEqualTo(Path.of("a/b"));
        assertThat(read(option(Option.Type.STRING_LIST), List.of("a", "b")).strings("x"))
                .containsExactly("a", "b");
        assertThat(read(option(Option.Type.JSON), Map.of("k", 1)).json("x"))
                .isEqualTo(Map.of("k", 1));
        assertThat(read(Option.choice("x", "test", "a", "b"), "b").string("x")).isEqualTo("b");
    }

    @ParameterizedTest
    @CsvSource({
        "1, 1",
        "512, 512",
        "4KiB, 4096",
        "4 KiB, 4096",
        "1kb, 1000",
        "1.5MiB, 1572864",
        "1e9, 1000000000",
        "2GB, 2000000000",
        "1TiB, 1099511627776"
    })
    void readsBytes(String text, long bytes) {
        assertThat(read(option(Option.Type.BYTES), text).bytes("x")).isEqualTo(bytes);
    }

    @ParameterizedTest
    @CsvSource({
        "250ms, 250",
        "30s, 30000",
        "5m, 300000",
        "5min, 300000",
        "2h, 7200000",
        "0.5, 500",
        "1500us, 1"
    })
    void readsDurations(String text, long millis) {
        assertThat(read(option(Option.Type.DURATION), text).duration("x").toMillis())
                .isEqualTo(millis);
        assertThat(read(option(Option.Type.DURATION), 3).duration("x"))
                .isEqualTo(Duration.ofSeconds(3));
    }

    @Test
    void refusesOtherShapes() {
        refuses(option(Option.Type.STRING), 5);
        refuses(option(Option.Type.BOOLEAN), "false");
        refuses(option(Option.Type.INTEGER), "7");
        refuses(option(Option.Type.INTEGER), 7.5);
        refuses(option(Option.Type.INTEGER), 1e300);
        refuses(option(Option.Type.INTEGER), BigInteger.TWO.pow(64).add(BigInteger.ONE));
        refuses(option(Option.Type.INTEGER), Double.NaN);
        refuses(option(Option.Type.NUMBER), Double.POSITIVE_INFINITY);
        refuses(option(Option.Type.PATH), "nul\0byte");
        refuses(option(Option.Type.STRING_LIST), "a,b");
        refuses(option(Option.Type.STRING_LIST), List.of("a", 1));
        refuses(Option.choice("x", "test", "a", "b"), "c");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "x", "4 parsecs", "-1", "1e999", "0x10", "1 2", "NaN"})
    void refusesOddQuantities(String text) {
        refuses(option(Option.Type.BYTES), text);
        refuses(option(Option.Type.DURATION), text);
    }

    @Test
    void refusesNegativeQuantities() {
        refuses(option(Option.Type.BYTES), -1);
        refuses(option(Option.Type.DURATION), -0.5);
        refuses(option(Option.Type.BYTES), Double.NaN);
    }

    @Test
    void keepsRangesAndNamesThem() {
        var port = option(Option.Type.INTEGER).inRange(1, 65_535);
        assertThat(read(port, 65_535).integer("x")).isEqualTo(65_535);
        refuses(port, 0);
        assertThatThrownBy(() -> read(port, 65_536))
                .hasMessageContaining("65536 is outside 1 to 65535");
        refuses(option(Option.Type.BYTES).inRange(1024, 1e9), "1kb");
        refuses(option(Option.Type.DURATION).inRange(0.1, 10), "11s");
    }

    @Test
    void namesTheNearestKey() {
        var schema =
                OptionSchema.of(
                        Option.of("durability", Option.Type.STRING, "test"),
                        Option.of("quota", Option.Type.BYTES, "test"));
        assertThatThrownBy(() -> schema.read("options of D", Map.of("durabilty", "none")))
                .hasMessageContaining("unknown key \"durabilty\"")
                .hasMessageContaining("did you mean \"durability\"?")
                .hasMessageContaining("durability, quota");
        assertThatThrownBy(() -> schema.read("options of D", Map.of("entirely-else", 1)))
                .hasMessageContaining("Known keys")
                .hasMessageNotContaining("did you mean");
        assertThatThrownBy(() -> OptionSchema.NONE.read("options of D", Map.of("a", 1)))
                .hasMessageContaining("none");
    }

    @Test
    void readsAliasesOnce() {
        var schema = OptionSchema.of(option(Option.Type.INTEGER).withAliases("ex"));
        assertThat(schema.read("t", Map.of("ex", 3)).integer("x")).isEqualTo(3);
        assertThatThrownBy(() -> schema.read("t", Map.of("ex", 3, "x", 4)))
                .hasMessageContaining("given twice");
    }

    @Test
    void givesDefaultsAndDemandsWhatIsRequired() {
        var schema =
                OptionSchema.of(
                        option(Option.Type.DURATION).withDefault("250ms"),
                        Option.of("need", Option.Type.STRING, "what is needed").asRequired(),
                        Option.of("maybe", Option.Type.STRING, "test"));
        var values = schema.read("t", Map.of("need", "yes"));
        assertThat(values.duration("x")).isEqualTo(Duration.ofMillis(250));
        assertThat(values.has("maybe")).isFalse();
        assertThat(values.optionalString("maybe")).isEmpty();
        assertThatThrownBy(() -> values.string("maybe"))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> values.string("other"))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> schema.read("t", Map.of()))
                .hasMessageContaining("need is missing (what is needed)");
    }

    @Test
    void refusesASecretWithoutShowingIt() {
        var schema = OptionSchema.of(option(Option.Type.STRING).asSecret());
        assertThatThrownBy(() -> schema.read("t", Map.of("x", List.of("hush"))))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("t: x")
                .hasMessageNotContaining("hush")
                .hasNoCause();
    }

    @Test
    void findsMistakesOfTheSchemaItself() {
        assertThatThrownBy(() ->
                        OptionSchema.of(option(Option.Type.INTEGER), option(Option.Type.STRING)))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> OptionSchema.of(option(Option.Type.BYTES).withDefault("many")))
                .isInstanceOf(KvFerryException.class);
        assertThatThrownBy(() -> OptionSchema.of(option(Option.Type.BOOLEAN).withDefault("yes")))
                .isInstanceOf(KvFerryException.class);
        assertThatThrownBy(() -> option(Option.Type.CHOICE))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() ->
                        new Option(
                                "x",
                                Option.Type.STRING,
                                Optional.of("d"),
                                true,
                                0,
                                1,
                                List.of(),
                                List.of(),
                                false,
                                "test"))
                .isInstanceOf(IllegalArgumentException.class);
    }
}
