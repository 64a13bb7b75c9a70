// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TensorIdsTest {
    private static final String ID =
            "___prefill_addr_127.0.0.1:9___decode_addr_127.0.0.1:8_"
                    + "0123456789abcdef0123456789abcdef";

    /// The index of a prompt stays, all else that servers add goes.
    @ParameterizedTest
    @CsvSource({
        "'','',''",
        "cmpl-,-0,''",
        "cmpl-,-1,-1",
        "cmpl-,-17,-17",
        "cmpl-,-0-0123abcd,''",
        "cmpl-,-2-12345678,-2",
        "chatcmpl-,-12345678,''",
        "chatcmpl-,-1234abcd,''",
        "cmpl-,-01,''",
        "cmpl-,-1x,''"
    })
    void theTransferOfARequest(String prefix, String suffix, String index) {
        assertThat(TensorIds.transfer(prefix + ID + suffix)).contains(ID + index);
        assertThat(TensorIds.parse(prefix + ID + suffix + "#layer"))
                .contains(new TensorIds(ID + index, "layer"));
        assertThat(VllmExchange.transfer(prefix + ID + suffix)).isEqualTo(ID + index);
    }
}
