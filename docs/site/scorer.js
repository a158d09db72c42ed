// Pages for developers come after those for users in the results of a search; the other values are Sphinx's own.
const LATER = /^(docs\/internals\/|CONTRIBUTING|CHANGELOG)/;
var Scorer = {
  score: ([page, , , , score]) => (LATER.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
