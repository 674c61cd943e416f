"""Programs as people write them, not attacks: name -> source. ``./input`` holds train.csv and test.csv (tabular,
``id``, ten numeric features, ``target``) and ``images``."""

HEAD = (
    "import numpy as np, pandas as pd\ntrain = pd.read_csv('input/train.csv'); test = pd.read_csv('input/test.csv')\n"
)
HEAD += "X = train.drop(columns=['id', 'target']); y = train.target; T = test.drop(columns=['id'])\n"
TAIL = "\npd.DataFrame({'id': test.id, 'target': p}).to_csv('submission.csv', index=False)\n"

TABULAR = {
    "grid_search_two_jobs": """
from sklearn.model_selection import GridSearchCV
from sklearn.linear_model import LogisticRegression
search = GridSearchCV(LogisticRegression(max_iter=50), {'C': [0.1, 1.0]}, n_jobs=2, cv=2).fit(X, y)
p = search.predict_proba(T)[:, 1]
""",
    "forest_two_jobs": """
from sklearn.ensemble import RandomForestClassifier
p = RandomForestClassifier(20, n_jobs=2, max_depth=8).fit(X[:20000], y[:20000]).predict_proba(T)[:, 1]
""",
    "histogram_boosting": """
from sklearn.ensemble import HistGradientBoostingClassifier
p = HistGradientBoostingClassifier(max_iter=20).fit(X, y).predict_proba(T)[:, 1]
""",
    "pipeline_with_cache": """
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.decomposition import PCA
from sklearn.linear_model import SGDClassifier
import tempfile
model = make_pipeline(StandardScaler(), PCA(5), SGDClassifier(loss='log_loss'), memory=tempfile.mkdtemp()).fit(X, y)
p = model.predict_proba(T)[:, 1]
""",
    "cross_validation_joblib": """
from joblib import Parallel, delayed
from sklearn.tree import DecisionTreeClassifier
fits = Parallel(n_jobs=2)(delayed(lambda s: DecisionTreeClassifier(max_depth=6, random_state=s).fit(X, y))(s)
                          for s in range(4))
p = np.mean([fit.predict_proba(T)[:, 1] for fit in fits], axis=0)
""",
    "matplotlib_to_file": """
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
plt.hist(X.iloc[:, 0], bins=50); plt.savefig('histogram.png'); p = np.full(len(T), y.mean())
""",
    "progress_bar": """
from tqdm import tqdm
total = 0
for _ in tqdm(range(3000)): total += 1
p = np.full(len(T), y.mean())
""",
    "multiprocessing_pool": """
import multiprocessing
def square(number): return number * number
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: total = sum(pool.map(square, range(10000)))
    with multiprocessing.get_context('spawn').Pool(2) as pool: pool.map(abs, range(10))
    p = np.full(len(T), y.mean())
""",
    "threads_and_queues": """
import concurrent.futures, threading, queue, asyncio
with concurrent.futures.ThreadPoolExecutor(8) as pool: list(pool.map(str, range(1000)))
with concurrent.futures.ProcessPoolExecutor(2) as pool: list(pool.map(str, range(100)))
async def nothing(): await asyncio.sleep(0.01)
asyncio.run(nothing()); p = np.full(len(T), y.mean())
""",
    "shared_memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=8_000_000)
view = np.ndarray((1_000_000,), buffer=block.buf); view[:] = 1.0; assert view.sum() == 1_000_000
del view; block.close(); block.unlink(); p = np.full(len(T), y.mean())
""",
    "pickled_model": """
import pickle, pathlib, sqlite3, tempfile
from sklearn.linear_model import LinearRegression
pathlib.Path('models').mkdir(); pickle.dump(LinearRegression().fit(X, y), open('models/m.pkl', 'wb'))
sqlite3.connect('models/x.db').execute('create table t (a)'); tempfile.NamedTemporaryFile().write(b'x')
p = pickle.load(open('models/m.pkl', 'rb')).predict(T)
""",
    "subprocess_and_time": """
import subprocess, time, datetime, random, uuid, socket, platform, getpass
print(subprocess.run(['ls', 'input'], capture_output=True, text=True).stdout, time.time(), datetime.datetime.now(),
      uuid.uuid4(), socket.gethostname(), platform.platform(), getpass.getuser())
p = np.full(len(T), y.mean())
""",
    "text_vectors": """
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
words = [f'word{n}' for n in range(5000)]
generator = np.random.default_rng(0)
texts = [' '.join(generator.choice(words, 400)) for _ in range(20000)]
matrix = TfidfVectorizer(max_features=20000).fit_transform(texts); print(matrix.shape)
p = np.full(len(T), y.mean())
""",
}

# Packages that the image has and a small environment may lack.
IMAGE_ONLY = {
    "lightgbm": """
import lightgbm
p = lightgbm.LGBMClassifier(n_estimators=30, n_jobs=2, verbose=-1).fit(X, y).predict_proba(T)[:, 1]
""",
    "xgboost": """
import xgboost
p = xgboost.XGBClassifier(n_estimators=30, n_jobs=2).fit(X, y).predict_proba(T)[:, 1]
""",
    "polars": """
import polars as pl
frame = pl.read_csv('input/train.csv').group_by('target').agg(pl.all().mean()).sort('target')
frame.write_parquet('means.parquet'); pl.read_parquet('means.parquet'); p = np.full(len(T), y.mean())
""",
    "opencv_on_500_jpegs": """
import cv2, glob
from skimage.feature import hog
paths = sorted(glob.glob('input/images/*.jpg')); assert len(paths) == 500
images = [cv2.resize(cv2.imread(path), (64, 64)) for path in paths]
features = [hog(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)) for image in images[:100]]
p = np.full(len(T), y.mean())
""",
    "statsmodels": """
import statsmodels.api as sm
p = sm.GLM(y[:5000], sm.add_constant(X[:5000]), family=sm.families.Binomial()).fit().predict(sm.add_constant(T))
""",
    "pillow": """
from PIL import Image
import glob
total = sum(np.asarray(Image.open(path).resize((32, 32))).mean() for path in glob.glob('input/images/*.jpg')[:100])
p = np.full(len(T), y.mean())
""",
}

TORCH = {
    "torch_dataloader_workers": """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.tensor(X.values, dtype=torch.float32), torch.tensor(y.values, dtype=torch.float32))
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for features, target in DataLoader(data, batch_size=1024, shuffle=True, num_workers=2):
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features)[:, 0], target)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
torch.save(model.state_dict(), 'model.pt'); model.load_state_dict(torch.load('model.pt'))
p = torch.sigmoid(model(torch.tensor(T.values, dtype=torch.float32)))[:, 0].detach().numpy()
""",
}

# What only the image `full` has.
FULL = {
    "torch_filter_and_threads": """
import torch
torch.manual_seed(0)
data = torch.tensor(X.values[:20000], dtype=torch.float32); target = torch.tensor(y.values[:20000])
model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.GELU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
first = None
for _ in range(60):
    loss = torch.nn.functional.cross_entropy(model(data), target)
    first = first or loss.item(); optimizer.zero_grad(); loss.backward(); optimizer.step()
assert loss.item() < first, (first, loss.item())
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
assert status['Seccomp'].strip() == '2' and status['NoNewPrivs'].strip() == '1'
assert not torch.cuda.is_available()
print(torch.__version__, torch.get_num_threads(), first, loss.item())
p = torch.softmax(model(torch.tensor(T.values, dtype=torch.float32)), 1)[:, 1].detach().numpy()
""",
    "torch_shares_tensors_between_processes": """
import torch, torch.multiprocessing as multiprocessing
def fill(block, rank): block[rank] = rank + 1
if __name__ == '__main__':
    block = torch.zeros(2).share_memory_()
    workers = [multiprocessing.get_context('fork').Process(target=fill, args=(block, rank)) for rank in range(2)]
    [worker.start() for worker in workers]; [worker.join() for worker in workers]
    assert block.tolist() == [1.0, 2.0]
    p = np.full(len(T), y.mean())
""",
    "transformers_forward": """
import torch
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64))
with torch.no_grad(): out = model(input_ids=torch.randint(0, 1000, (4, 16))).last_hidden_state
assert out.shape == (4, 16, 32) and bool(out.isfinite().all())
p = np.full(len(T), y.mean())
""",
    "timm_model": """
import timm, torch, torchvision
model = timm.create_model('resnet18', pretrained=False, num_classes=3).eval()
with torch.no_grad(): out = model(torch.rand(2, 3, 64, 64))
assert out.shape == (2, 3)
boxes = torch.tensor([[0., 0., 1., 1.], [0., 0., 1., 1.]])
assert torchvision.ops.nms(boxes, torch.tensor([1., 0.5]), 0.5).tolist() == [0]
p = np.full(len(T), y.mean())
""",
    "sentence_encoder": """
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, models as kinds, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
tokenizer = Tokenizer(kinds.WordLevel({'[UNK]': 0, '[PAD]': 1, 'a': 2, 'b': 3}, unk_token='[UNK]'))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token='[UNK]', pad_token='[PAD]').save_pretrained('encoder')
BertModel(BertConfig(vocab_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                     intermediate_size=32)).save_pretrained('encoder')
word = models.Transformer('encoder'); pool = models.Pooling(16)
vectors = SentenceTransformer(modules=[word, pool], device='cpu').encode(['a b', 'b b a'])
assert vectors.shape == (2, 16)
p = np.full(len(T), y.mean())
""",
}


def source(body: str) -> str:
    return HEAD + body + TAIL if "__main__" not in body else HEAD + body + "    " + TAIL.strip() + "\n"
