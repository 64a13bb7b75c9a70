// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.runner.llama.LlamaConfig.Rope;
import io.kvferry.runner.llama.LlamaConfig.Scaling;

import org.junit.jupiter.api.Test;

import java.util.Random;

class KernelsTest {
    @Test
    void exponentiatesWithinTwoUnits() {
        for (float x = -86; x < 88; x += 0.01f) {
            double exact = Math.exp(x);
            assertThat((double) Kernels.exp(x))
                    .as("exp(%s)", x)
                    .isCloseTo(exact, within(2 * Math.ulp((float) exact) + 0.0));
        }
        assertThat(Kernels.exp(0)).isEqualTo(1);
        assertThat(Kernels.exp(-1000)).isLessThan(1e-37f);
    }

    /// Sizes that are no multiple of any tile or unrolling.
    @Test
    void multipliesInOneOrderWhateverTheTiling() {
        var random = new Random(1);
        float[] file = new float[301 * 133];
        for (int i = 0; i < file.length; i++) {
            file[i] = (float) random.nextGaussian();
        }
        float[][] x = new float[3][133];
        for (float[] row : x) {
            for (int i = 0; i < row.length; i++) {
                row[i] = (float) random.nextGaussian();
            }
        }
        float[][] y = new float[3][301];
        Matrix.ofFile(file, 301, 133).multiply(x, y, 3);
        for (int r = 0; r < 3; r++) {
            for (int o = 0; o < 301; o++) {
                float sum = 0;
                for (int i = 0; i < 133; i++) {
                    sum += x[r][i] * file[o * 133 + i];
                }
                assertThat(y[r][o]).isEqualTo(sum);
            }
        }
    }

    /// Frequencies by the published formula for Llama 3.1: base 500000, factor 8, low 1, high 4,
    /// context 8192.
    @Test
    void stretchesFrequenciesAsLlama3Does() {
        var rope = new RopeTable(8, 1001, new Rope(500_000, new Scaling.Llama3(8, 1, 4, 8192)));
        float[] x = {1, 1, 1, 1, 0, 0, 0, 0};
        rope.rotate(x, 1, 1000);
        double[] cosines = {
            0.5623790762907029, 0.9956710987321743, 0.8654010374940257, 0.999977902994468
        };
        double[] sines = {
            0.8268795405320025, -0.09294656071886086, 0.5010798781674073, 0.0066478209051033296
        };
        for (int i = 0; i < 4; i++) {
            assertThat((double) x[i]).isCloseTo(cosines[i], within(1e-5));
            assertThat((double) x[4 + i]).isCloseTo(sines[i], within(1e-5));
        }
    }
}
