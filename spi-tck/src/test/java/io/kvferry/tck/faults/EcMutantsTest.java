// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

import java.util.List;
import java.util.stream.Stream;

/// The contract of encoder-cache connectors finds broken ones: each mutant fails the test that is
/// there for its defect, which the connector without the defect passes.
class EcMutantsTest {
    private static final List<Mutation> CASES =
            List.of(
                    new Mutation(EcMutants.CompletesTwice.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.PromisesParts.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.RepeatsItsPlan.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.SavesAStepLate.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.LosesFailures.class, "damagedItemsAreNoticed"),
                    new Mutation(EcMutants.LeavesRoomOfFailedLoads.class, "damagedItemsAreNoticed"),
                    new Mutation(EcMutants.LoadsOverWhatIsThere.class, "loadsDoNotOverwrite"),
                    new Mutation(EcMutants.LoadsOnOneRankOnly.class, "everyRankGetsTheItem"),
                    new Mutation(
                            EcMutants.NeverAnswersRevocations.class, "revokedLoadsAreAnswered"),
                    new Mutation(
                            EcMutants.NeverAnswersRevocations.class, "revokedHoldsAreAnswered"),
                    new Mutation(EcMutants.LoadsWhatWasRevoked.class, "revokedLoadsAreAnswered"),
                    new Mutation(EcMutants.IgnoresModels.class, "modelsAndShapesAreKeptApart"),
                    new Mutation(
                            EcMemoryMutants.AnswersForTheFirst.class,
                            "everyItemOfARequestIsAnsweredFor"),
                    new Mutation(EcMemoryMutants.WritesBehindItsRoom.class, "loadsStayInTheirRoom"),
                    new Mutation(
                            EcMemoryMutants.PublishesNothing.class, "manyItemsAtOnceAreAllServed"),
                    new Mutation(
                            EcMemoryMutants.LosesOneOfMany.class, "manyItemsAtOnceAreAllServed"),
                    new Mutation(
                            EcMemoryMutants.AnnouncesWhatItDidNotSave.class,
                            "savesThatFailAreNoItems"),
                    new Mutation(
                            EcMemoryMutants.SpoilsWhatIsThere.class, "itemsEncodedTwiceAreRight"),
                    new Mutation(
                            EcMemoryMutants.LoadsEachItemOnce.class, "droppedItemsAreLoadedAgain"),
                    new Mutation(EcMemoryMutants.IsNeverIdle.class, "idleConnectorsAskForNoStep"),
                    new Mutation(
                            EcMemoryMutants.FreesTheMemoryTooSoon.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Mutation(
                            EcMemoryMutants.ProvidesUsedMemory.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Mutation(EcMemoryMutants.SignalsNothing.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.ChangesItsClaims.class, "callsComeInTheDocumentedOrder"),
                    new Mutation(EcMutants.IgnoresItsRole.class, "rolesAreKept"),
                    new Mutation(EcMutants.LeaksAThread.class, "closingIsSafe"),
                    new Mutation(
                            EcMemoryMutants.SaysClosedWhileItWrites.class,
                            "closingIsOverWhenItReturns"),
                    new Mutation(
                            EcHoldMutants.NeverEndsHolds.class, "holdsEndWhenTheirItemsAreFetched"),
                    new Mutation(
                            EcHoldMutants.HoldsWithoutClaimingIt.class,
                            "holdsEndWhenTheirItemsAreFetched"),
                    new Mutation(EcHoldMutants.HoldsForNobody.class, "nothingIsHeldForNobody"),
                    new Mutation(EcHoldMutants.AnnouncesNothing.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(EcHoldMutants.AnnouncesTwice.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(
                            EcHoldMutants.ClaimsHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(
                            EcHoldMutants.HidesHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(EcHoldMutants.HidesItsEvents.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(EcHoldMutants.ResetsNothing.class, "resetMakesEverythingAMiss"));

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return Mutation.areFound(EcMutants.None.class, CASES);
    }
}
