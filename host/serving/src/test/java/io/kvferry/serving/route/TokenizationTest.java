// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.events.KvEventSubscriber;
import io.kvferry.serving.events.ZmqAddress;
import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Which instances a router asks for the tokens of prompts.
@Timeout(300)
class TokenizationTest extends RouterRig {
    private static final String TOKENS = "{\"tokens\": [1, 2, 3]}";

    private PdRouter router(StubInstance p, StubInstance d) throws IOException {
        var nobody = new ZmqAddress("tcp://127.0.0.1:" + deadUri().getPort());
        var source = new KvEventSubscriber.Source(nobody, Optional.empty(), "");
        var settings =
                RouterSettings.of(
                                HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()), List.<URI>of())
                        .withKvEvents(Map.of(p.uri(), source));
        var router = new PdRouter(settings, TestClient.loopback(64, 1 << 20));
        open.add(router);
        router.start();
        return router;
    }

    private static HttpService.Handler counting(AtomicInteger asked, HttpService.Handler then) {
        return call -> {
            asked.incrementAndGet();
            then.handle(call);
        };
    }

    @Test
    void anInstanceThatFailsIsNotAskedForAWhileAndOthersAre() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var ofP = new AtomicInteger();
        var ofD = new AtomicInteger();
        p.tokenize = counting(ofP, StubInstance.json(500, "{}"));
        d.tokenize = counting(ofD, StubInstance.json(200, TOKENS));
        var router = router(p, d);
        long begin = System.nanoTime();
        for (int i = 0; i < 6; i++) {
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        }
        int pauses = (int) TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin) / 5;
        assertThat(ofP).as("the pause takes 5 s").hasValueBetween(1, 1 + pauses);
        assertThat(ofD).hasPositiveValue();
    }

    /// It is routed without its tokens, and the next request is tokenized again.
    @Test
    void aLongPromptThatIsLateSaysNothingAboutTheInstance() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var asked = new AtomicInteger();
        var over = new CountDownLatch(1);
        HttpService.Handler late = call -> answerLate(call, over);
        p.tokenize = counting(asked, late);
        d.tokenize = counting(asked, late);
        var router = router(p, d);
        var prompt = "y".repeat(80 << 10);
        assertThat(ask(router, Json.text(Json.object().put("prompt", prompt))).statusCode())
                .isEqualTo(200);
        over.countDown();
        for (int i = 0; i < 2; i++) {
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        }
        assertThat(asked).hasValue(3);
    }

    private static void answerLate(HttpCall call, CountDownLatch over)
            throws IOException, InterruptedException {
        over.await(20, TimeUnit.SECONDS);
        call.respondText(200, "application/json", TOKENS);
    }
}
